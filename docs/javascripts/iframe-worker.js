// Search in a site that is opened from a folder. A browser starts no Worker for a file, so the worker's script runs in a
// hidden frame instead, which has the same interface. The theme looks for the name IFrameWorker.

class IFrameWorker extends EventTarget {
  constructor(url) {
    super();
    const frame = document.createElement("iframe");
    frame.hidden = true;
    document.body.appendChild(frame);
    this.inside = frame.contentWindow;
    window.addEventListener("message", (event) => {
      if (event.source === this.inside) this.dispatchEvent(new MessageEvent("message", { data: event.data }));
    });
    this.inside.document.open();
    this.inside.document.write(
      `<body><script>postMessage = (data) => parent.postMessage(data, "*")<\/script><script src="${url}"><\/script>`
    );
    this.inside.document.close();
    this.loaded = new Promise((resolve) => this.inside.addEventListener("load", resolve));
  }

  postMessage(data) {
    this.loaded.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
  }
}

window.IFrameWorker = IFrameWorker;
if (location.protocol === "file:") window.Worker = IFrameWorker;
