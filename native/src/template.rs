//! Templates: what the messages of one table have in common, as a short program over bytes.
//!
//! A protocol builds a template from one message that the general path has read. A message fits if the program consumes
//! it to its last byte. Nothing is skipped: each byte of a message that fits is one that the template names, or one of a
//! number or a cell that is JSON.

use crate::json::{self, Cell};

/// The rows of a message: that before an update; that after an insert or an update, or the deleted one.
pub const PREIMAGE: usize = 0;
pub const IMAGE: usize = 1;

/// The slots of numbers: the commit-ts; when the event was encoded, in ms; when it happened, in ms; any other.
pub const COMMIT_TS: usize = 0;
pub const BUILD_TS: usize = 1;
pub const EVENT_TIME: usize = 2;
pub const NUMBERS: usize = 4;

/// What happened to a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Insert = 0,
    Update = 1,
    Delete = 2,
}

impl Operation {
    pub fn of(number: u8) -> Option<Operation> {
        [Operation::Insert, Operation::Update, Operation::Delete]
            .into_iter()
            .find(|operation| *operation as u8 == number)
    }
}

/// One step of a template.
#[derive(Debug)]
pub enum Step {
    /// These bytes.
    Const(Vec<u8>),
    /// One of these byte strings: the first that fits. There is no way back, so longer ones come first.
    Choice(Vec<Vec<u8>>),
    /// A positive integer of at most 18 digits and at most `most`, kept in a slot.
    Number { slot: usize, most: i64 },
    /// These members of an object, each once, in any order. A path has this step once at most.
    Members(Members),
    /// A row, kept as the preimage or the image.
    Row(usize),
    /// Sets the operation; reads no bytes. Every path through a template has this step.
    SetOperation(Operation),
    /// The first branch whose bytes fit; there is no way back. The steps after this one run whichever was taken.
    Branch(Vec<(Vec<u8>, Vec<Step>)>),
}

/// The columns of a row.
#[derive(Debug)]
pub struct Columns {
    /// Of each column, the bytes before its cell: one of several.
    pub heads: Vec<Vec<Vec<u8>>>,
    /// The bytes behind each cell.
    pub tail: Vec<u8>,
    /// Whether a preimage may lack columns, which then have the values of the image.
    pub partial: bool,
}

/// What is found in a message.
#[derive(Debug)]
pub struct Found {
    pub operation: Operation,
    /// By slot; -1 for a number that the message lacks.
    pub numbers: [i64; NUMBERS],
    /// Whether there is a preimage, and whether there is an image.
    pub has: [bool; 2],
    /// The cells of the preimage and of the image.
    pub cells: [Vec<Cell>; 2],
    /// For `Members`: by member, the number of the last message that had it.
    marks: Vec<u64>,
    message_id: u64,
}

impl Found {
    pub fn new(columns: usize, members: usize) -> Found {
        Found {
            operation: Operation::Insert,
            numbers: [-1; NUMBERS],
            has: [false; 2],
            cells: [vec![Cell::MISSING; columns], vec![Cell::MISSING; columns]],
            marks: vec![0; members],
            message_id: 0,
        }
    }
}

/// A template.
#[derive(Debug)]
pub struct Template {
    pub steps: Vec<Step>,
    pub columns: Columns,
}

/// Merges constants that follow one another. A choice of one string is a constant.
pub fn merge_constants(steps: Vec<Step>) -> Vec<Step> {
    let mut merge_constants: Vec<Step> = Vec::with_capacity(steps.len());
    for step in steps {
        let step = match step {
            Step::Choice(mut choices) if choices.len() == 1 => Step::Const(choices.swap_remove(0)),
            step => step,
        };
        match (merge_constants.last_mut(), step) {
            (Some(Step::Const(before)), Step::Const(bytes)) => before.extend_from_slice(&bytes),
            (_, step) => merge_constants.push(step),
        }
    }
    merge_constants
}

impl Template {
    /// Returns the largest number of members that a step has.
    pub fn max_members(&self) -> usize {
        fn most(steps: &[Step]) -> usize {
            let of = |step: &Step| match step {
                Step::Members(members) => members.members.len(),
                Step::Branch(branches) => branches.iter().map(|(_, steps)| most(steps)).max().unwrap_or(0),
                _ => 0,
            };
            steps.iter().map(of).max().unwrap_or(0)
        }
        most(&self.steps)
    }

    /// Reads a message; returns whether it fits. If not, the contents of `found` are undefined.
    #[inline]
    pub fn read(&self, message: &[u8], found: &mut Found) -> bool {
        found.numbers = [-1; NUMBERS];
        found.has = [false; 2];
        found.message_id += 1;
        let fits = self.run(&self.steps, message, 0, found) == Some(message.len());
        fits && found.has[IMAGE] && (!found.has[PREIMAGE] || found.operation == Operation::Update)
    }

    fn run(&self, steps: &[Step], message: &[u8], mut at: usize, found: &mut Found) -> Option<usize> {
        for step in steps {
            at = match step {
                Step::Const(bytes) => match_at(message, at, bytes)?,
                Step::Choice(choices) => choices.iter().find_map(|bytes| match_at(message, at, bytes))?,
                Step::Number { slot, most } => {
                    let (number, end) = json::positive(message, at)?;
                    if number > *most {
                        return None;
                    }
                    found.numbers[*slot] = number;
                    end
                }
                Step::Members(members) => members.match_at(message, at, found.message_id, &mut found.marks)?,
                Step::Row(which) => self.row(*which, message, at, found)?,
                Step::SetOperation(operation) => {
                    found.operation = *operation;
                    at
                }
                Step::Branch(branches) => {
                    let (next, steps) =
                        branches.iter().find_map(|(bytes, steps)| Some((match_at(message, at, bytes)?, steps)))?;
                    self.run(steps, message, next, found)?
                }
            };
        }
        Some(at)
    }

    /// Reads the members of a row, and stops before the brace that ends it.
    #[inline]
    fn row(&self, which: usize, message: &[u8], mut at: usize, found: &mut Found) -> Option<usize> {
        let partial = self.columns.partial && which == PREIMAGE;
        let mut first = true;
        for (heads, kept) in self.columns.heads.iter().zip(&mut found.cells[which]) {
            let start = if first { at } else { match_at(message, at, b",").unwrap_or(usize::MAX) };
            match heads.iter().find_map(|head| match_at(message, start, head)) {
                Some(next) => {
                    let (cell, next) = json::cell(message, next)?;
                    *kept = cell;
                    at = match_at(message, next, &self.columns.tail)?;
                    first = false;
                }
                None if partial => *kept = Cell::MISSING,
                None => return None,
            }
        }
        found.has[which] = true;
        Some(at)
    }
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
fn equal(one: &[u8], other: &[u8]) -> bool {
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

    #[inline]
    fn match_at(&self, message: &[u8], mut at: usize, message_id: u64, marks: &mut [u64]) -> Option<usize> {
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

#[cfg(test)]
mod tests;
