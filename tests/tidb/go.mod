// What `make tidb` builds: tidb-server, as a command of a module of its own. The other modules that it needs, and their
// checksums, are added by `go get` in the cache. The `replace` lines are those of TiDB's go.mod, which Go heeds only in
// the main module.
module tidb-for-tests

go 1.23.12

require (
	github.com/pingcap/tidb v1.1.0-beta.0.20251121075944-8f2630e53d5d
	github.com/pingcap/tidb/pkg/parser v0.0.0-20251121075944-8f2630e53d5d
)

replace (
	github.com/apache/arrow-go/v18 => github.com/joechenrh/arrow-go/v18 v18.0.0-20250911101656-62c34c9a3b82
	github.com/go-ldap/ldap/v3 => github.com/YangKeao/ldap/v3 v3.4.5-0.20230421065457-369a3bab1117
	sourcegraph.com/sourcegraph/appdash => github.com/sourcegraph/appdash v0.0.0-20190731080439-ebfcffb1b5c0
	sourcegraph.com/sourcegraph/appdash-data => github.com/sourcegraph/appdash-data v0.0.0-20151005221446-73f23eafcf67
)
