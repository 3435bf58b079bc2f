//! Bytes that must stand at a place: constants, and members of an object in any order.

use crate::json::{ONES, zeros};

/// Members of an object, in any order: `"name":"text"`, without escapes.
#[derive(Debug)]
pub struct Members {
    members: Vec<Member>,
    /// How many words are compared: those of the longest member; none if it has more than `WORDS`.
    words: usize,
    /// By hash, one more than the index of a member; 0 for none.
    slots: Vec<u32>,
    hashing: Hashing,
}

/// A member, and its first words: where a mask has zeros, the bytes are behind it. Members are compared without a
/// branch, because their order is random.
#[derive(Debug)]
struct Member {
    bytes: Vec<u8>,
    words: [u64; WORDS],
    masks: [u64; WORDS],
}

/// How a member is hashed.
#[derive(Clone, Copy, Debug)]
struct Hashing {
    part: Part,
    /// The bits of a hash that are kept.
    kept: usize,
    factor: u64,
}

/// Which bytes of a member are hashed.
#[derive(Clone, Copy, Debug)]
enum Part {
    /// Eight bytes at this offset; every member reaches that far.
    Window(usize),
    /// The first and the last eight bytes of its name, and the name's length.
    Name,
}

const WINDOW: usize = 8;
const WORDS: usize = 8;
const FEW_WORDS: usize = 4;
/// If the best window puts more members than this in one slot, names are hashed instead.
const MAX_IN_SLOT: usize = 2;
/// Slots for each member, and how many factors are tried until no two members are in one slot.
const SLOTS_EACH: usize = 16;
const FACTORS: u64 = 16;

impl Members {
    /// Returns None if two members are equal, or one is not `"name":"text"`.
    pub fn new(members: Vec<Vec<u8>>) -> Option<Members> {
        let shortest = members.iter().map(Vec::len).min().unwrap_or(0);
        let longest = members.iter().map(Vec::len).max().unwrap_or(0);
        let hashing = best_hashing(&members, (0..(shortest + 1).saturating_sub(WINDOW)).map(Part::Window))
            .filter(|(fullest_slot, _)| *fullest_slot <= MAX_IN_SLOT)
            .or_else(|| best_hashing(&members, [Part::Name].into_iter()))
            .map(|(_, hashing)| hashing)?;
        let mut slots = vec![0; hashing.kept + 1];
        for (index, member) in members.iter().enumerate() {
            let mut slot = hashing.slot(member, 0)?;
            while slots[slot] != 0 {
                if members[slots[slot] as usize - 1] == *member {
                    return None;
                }
                slot = (slot + 1) & hashing.kept;
            }
            slots[slot] = index as u32 + 1;
        }
        let words = longest.div_ceil(8);
        let words = if words > WORDS { 0 } else { words };
        Some(Members { members: members.into_iter().map(Member::new).collect(), words, slots, hashing })
    }

    pub fn count(&self) -> usize {
        self.members.len()
    }

    #[inline]
    pub fn match_at(&self, message: &[u8], at: usize, message_id: u64, marks: &mut [u64]) -> Option<usize> {
        match self.words {
            0 => self.match_each(message, at, message_id, marks, Member::match_at),
            1..=FEW_WORDS => self.match_each(message, at, message_id, marks, Member::match_words::<FEW_WORDS>),
            _ => self.match_each(message, at, message_id, marks, Member::match_words::<WORDS>),
        }
    }

    #[inline(always)]
    fn match_each(
        &self,
        message: &[u8],
        mut at: usize,
        message_id: u64,
        marks: &mut [u64],
        matched: impl Fn(&Member, &[u8], usize) -> Option<usize>,
    ) -> Option<usize> {
        for count in 0..self.members.len() {
            if count > 0 {
                at = match_at(message, at, b",")?;
            }
            let mut slot = self.hashing.slot(message, at)?;
            at = loop {
                let index = (*self.slots.get(slot)? as usize).checked_sub(1)?;
                if let Some(end) = matched(&self.members[index], message, at) {
                    // A member twice: then another one is missing.
                    if marks[index] == message_id {
                        return None;
                    }
                    marks[index] = message_id;
                    break end;
                }
                slot = (slot + 1) & self.hashing.kept;
            };
        }
        Some(at)
    }
}

impl Member {
    fn new(bytes: Vec<u8>) -> Member {
        let (mut words, mut masks) = ([0; WORDS], [0; WORDS]);
        for (index, chunk) in bytes.chunks(8).take(WORDS).enumerate() {
            (words[index], masks[index]) = (first_word(chunk), u64::MAX >> (8 * (8 - chunk.len())));
        }
        Member { bytes, words, masks }
    }

    #[inline(always)]
    fn match_at(&self, message: &[u8], at: usize) -> Option<usize> {
        match_at(message, at, &self.bytes)
    }

    /// Like `match_at`, for a member of no more than `COUNT` words.
    #[inline(always)]
    fn match_words<const COUNT: usize>(&self, message: &[u8], at: usize) -> Option<usize> {
        let Some(there) = message.get(at..at + 8 * COUNT) else {
            return self.match_at(message, at); // near the end of the message
        };
        let mut others = 0;
        for ((chunk, word), mask) in there.as_chunks::<8>().0.iter().zip(&self.words).zip(&self.masks) {
            others |= (u64::from_le_bytes(*chunk) ^ word) & mask;
        }
        (others == 0).then_some(at + self.bytes.len())
    }
}

/// Returns how many members are in the fullest slot, and the hashing for which they are fewest.
fn best_hashing(members: &[Vec<u8>], parts: impl Iterator<Item = Part>) -> Option<(usize, Hashing)> {
    let kept = (members.len() * SLOTS_EACH).next_power_of_two() - 1;
    let mut best: Option<(usize, Hashing)> = None;
    for part in parts {
        for number in 0..FACTORS {
            let factor = 0x9E37_79B9_7F4A_7C15u64.wrapping_mul(2 * number + 1);
            let hashing = Hashing { part, kept, factor };
            let fullest_slot = hashing.fullest_slot(members);
            if best.is_none_or(|(least, _)| fullest_slot < least) {
                best = Some((fullest_slot, hashing));
            }
            if fullest_slot <= 1 {
                return best;
            }
        }
    }
    best
}

impl Hashing {
    /// Returns how many members are in the fullest slot.
    fn fullest_slot(&self, members: &[Vec<u8>]) -> usize {
        let mut slots: Vec<usize> = members.iter().filter_map(|member| self.slot(member, 0)).collect();
        slots.sort_unstable();
        slots.chunk_by(|one, other| one == other).map(<[usize]>::len).max().unwrap_or(0)
    }

    /// Returns the slot of the member that begins at `at`.
    #[inline(always)]
    fn slot(&self, message: &[u8], at: usize) -> Option<usize> {
        let word = match self.part {
            Part::Window(offset) => u64::from_le_bytes(*message.get(at + offset..)?.first_chunk::<WINDOW>()?),
            Part::Name => {
                let name = message.get(at + 1..)?;
                let length = quote(name)?;
                let first = first_word(name) & !(u64::MAX.checked_shl(8 * length as u32).unwrap_or(0));
                let last = length.checked_sub(8).map_or(first, |start| first_word(&name[start..]));
                first.rotate_left(29) ^ last ^ length as u64
            }
        };
        // The product's highest bits depend on all bits of the word.
        Some((word.wrapping_mul(self.factor) >> (self.kept as u64).leading_zeros().min(63)) as usize & self.kept)
    }
}

/// Returns the first eight bytes as a number, with zeros for those that are missing.
#[inline(always)]
fn first_word(bytes: &[u8]) -> u64 {
    match bytes.first_chunk::<8>() {
        Some(word) => u64::from_le_bytes(*word),
        None => bytes.iter().rev().fold(0, |word, &byte| word << 8 | byte as u64),
    }
}

/// Returns the index of the first quote.
#[inline(always)]
fn quote(bytes: &[u8]) -> Option<usize> {
    for (index, word) in bytes.as_chunks::<8>().0.iter().enumerate() {
        let hits = zeros(u64::from_le_bytes(*word) ^ (ONES * b'"' as u64));
        if hits != 0 {
            return Some(8 * index + (hits.trailing_zeros() / 8) as usize);
        }
    }
    let rest = bytes.as_chunks::<8>().1;
    rest.iter().position(|&byte| byte == b'"').map(|index| bytes.len() - rest.len() + index)
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
