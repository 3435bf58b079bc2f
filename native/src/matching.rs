//! Bytes that must stand at a place: constants, and members of an object in any order.

/// Members of an object, in any order: `"name":"text"`, without escapes.
#[derive(Debug)]
pub struct Members {
    members: Vec<Vec<u8>>,
    /// By hash, one more than the index of a member; 0 for none.
    slots: Vec<u32>,
    hashing: Hashing,
}

/// Which bytes of a member are hashed.
#[derive(Clone, Copy, Debug)]
enum Hashing {
    /// Eight bytes at this offset; every member reaches that far.
    Window(usize),
    /// The first and the last eight bytes of its name, and the name's length.
    Name,
}

const WINDOW: usize = 8;
/// If the best window puts more members than this in one slot, names are hashed instead.
const MAX_IN_SLOT: usize = 2;

impl Members {
    /// Returns None if two members are equal, or one is not `"name":"text"`.
    pub fn new(members: Vec<Vec<u8>>) -> Option<Members> {
        let shortest = members.iter().map(Vec::len).min().unwrap_or(0);
        let windows = (0..(shortest + 1).saturating_sub(WINDOW)).map(Hashing::Window);
        let size = (members.len() * 4).next_power_of_two();
        let hashing = windows
            .map(|hashing| (fullest_slot(&members, hashing, size), hashing))
            .min_by_key(|(fullest_slot, _)| *fullest_slot)
            .filter(|(fullest_slot, _)| *fullest_slot <= MAX_IN_SLOT)
            .map_or(Hashing::Name, |(_, hashing)| hashing);
        let mut slots = vec![0; size];
        for (index, member) in members.iter().enumerate() {
            let mut slot = hash(member, 0, hashing)? & (size - 1);
            while slots[slot] != 0 {
                if members[slots[slot] as usize - 1] == *member {
                    return None;
                }
                slot = (slot + 1) & (size - 1);
            }
            slots[slot] = index as u32 + 1;
        }
        Some(Members { members, slots, hashing })
    }

    pub fn count(&self) -> usize {
        self.members.len()
    }

    #[inline]
    pub fn match_at(&self, message: &[u8], mut at: usize, message_id: u64, marks: &mut [u64]) -> Option<usize> {
        for count in 0..self.members.len() {
            if count > 0 {
                at = match_at(message, at, b",")?;
            }
            let mut slot = hash(message, at, self.hashing)? & (self.slots.len() - 1);
            at = loop {
                let index = (*self.slots.get(slot)? as usize).checked_sub(1)?;
                if let Some(end) = match_at(message, at, &self.members[index]) {
                    // A member twice: then another one is missing.
                    if marks[index] == message_id {
                        return None;
                    }
                    marks[index] = message_id;
                    break end;
                }
                slot = (slot + 1) & (self.slots.len() - 1);
            };
        }
        Some(at)
    }
}

/// Returns the size of the fullest slot.
fn fullest_slot(members: &[Vec<u8>], hashing: Hashing, size: usize) -> usize {
    let mut hashes: Vec<usize> =
        members.iter().filter_map(|member| Some(hash(member, 0, hashing)? & (size - 1))).collect();
    hashes.sort_unstable();
    hashes.chunk_by(|one, other| one == other).map(<[usize]>::len).max().unwrap_or(0)
}

/// Hashes the member that begins at `at`.
#[inline]
fn hash(message: &[u8], at: usize, hashing: Hashing) -> Option<usize> {
    let word = match hashing {
        Hashing::Window(offset) => u64::from_le_bytes(message.get(at + offset..at + offset + WINDOW)?.try_into().ok()?),
        Hashing::Name => {
            let rest = message.get(at + 1..)?;
            let name = rest.get(..rest.iter().position(|&byte| byte == b'"')?)?;
            let length = name.len().min(WINDOW);
            let (mut first, mut last) = ([0; WINDOW], [0; WINDOW]);
            first[..length].copy_from_slice(&name[..length]);
            last[..length].copy_from_slice(&name[name.len() - length..]);
            u64::from_le_bytes(first).rotate_left(29) ^ u64::from_le_bytes(last) ^ name.len() as u64
        }
    };
    Some((word.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize)
}

/// Returns the index behind `bytes`, which must stand at `at`.
#[inline(always)]
pub fn match_at(message: &[u8], at: usize, bytes: &[u8]) -> Option<usize> {
    let end = at.checked_add(bytes.len())?;
    equal(message.get(at..end)?, bytes).then_some(end)
}

/// From this length on, the library's `memcmp` is faster.
const LONG: usize = 64;

/// Compares two slices of equal length. Most are short: their comparison is inlined, eight bytes at a time.
#[inline(always)]
pub fn equal(one: &[u8], other: &[u8]) -> bool {
    if other.len() >= LONG {
        return one == other;
    }
    match (one.last_chunk::<8>(), other.last_chunk::<8>()) {
        (Some(end), Some(other_end)) => {
            let (words, _) = one.as_chunks::<8>();
            let (other_words, _) = other.as_chunks::<8>();
            words.iter().zip(other_words).all(|(word, other)| u64::from_le_bytes(*word) == u64::from_le_bytes(*other))
                && u64::from_le_bytes(*end) == u64::from_le_bytes(*other_end)
        }
        _ => one.iter().zip(other).all(|(byte, other)| byte == other) && one.len() == other.len(),
    }
}
