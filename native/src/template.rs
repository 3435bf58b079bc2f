//! Templates: what the messages of one table have in common, as a short program over bytes.
//!
//! A protocol builds a template from one message that the general path has read. A message fits if the program consumes
//! it to its last byte. Nothing is skipped: each byte of a message that fits is one that the template names, or one of a
//! number or a cell that is JSON.

use crate::avro;
use crate::contract::{Image, Operation, Program, Slot, Step, Steps};
use crate::json::{self, Cell};
use crate::matching::match_at;
use crate::mysql;

/// How many slots there are.
const SLOTS: usize = Slot::Ignored as usize + 1;

/// What a message that fits holds.
#[derive(Debug)]
pub struct Contents {
    pub operation: Operation,
    /// By slot; -1 for a number that the message lacks.
    numbers: [i64; SLOTS],
    /// By image, whether there is one.
    has: [bool; 2],
    /// By image, its cells.
    cells: [Vec<Cell>; 2],
    /// For `Members`: by member, the number of the last message that had it.
    marks: Vec<u64>,
    message_id: u64,
}

impl Contents {
    pub fn new(columns: usize, members: usize) -> Contents {
        Contents {
            operation: Operation::Insert,
            numbers: [-1; SLOTS],
            has: [false; 2],
            cells: [vec![Cell::MISSING; columns], vec![Cell::MISSING; columns]],
            marks: vec![0; members],
            message_id: 0,
        }
    }

    /// Returns a number; -1 if the message lacks it.
    pub fn number(&self, slot: Slot) -> i64 {
        self.numbers[slot as usize]
    }

    pub fn has(&self, image: Image) -> bool {
        self.has[image as usize]
    }

    pub fn cells(&self, image: Image) -> &[Cell] {
        &self.cells[image as usize]
    }

    /// Gives the preimage the cells of the main image that it lacks.
    pub fn complete_preimage(&mut self) {
        let [preimage, main] = &mut self.cells;
        for (cell, other) in preimage.iter_mut().zip(main) {
            if cell.kind == json::Kind::Missing {
                *cell = *other;
            }
        }
    }
}

impl Steps {
    /// Returns the largest of the numbers that a function has for a step.
    fn most(&self, of: &impl Fn(&Step) -> usize) -> usize {
        let most = |step: &Step| match step {
            Step::Branch { ways } => ways.iter().map(|way| way.steps.most(of)).max().unwrap_or(0),
            step => of(step),
        };
        self.0.iter().map(most).max().unwrap_or(0)
    }
}

impl Program {
    /// Returns the largest number of members that a step has.
    pub fn max_members(&self) -> usize {
        self.steps.most(&|step| if let Step::Members { members } = step { members.count() } else { 0 })
    }

    /// Returns how many columns a row has.
    pub fn columns(&self) -> usize {
        let fields = self.steps.most(&|step| match step {
            Step::AvroRow { fields, .. } => fields.len(),
            Step::TextRow { binary, .. } => binary.len(),
            Step::CSVRow { quoted, .. } => quoted.len(),
            _ => 0,
        });
        fields.max(self.heads.len())
    }

    /// Reads a message; returns whether it fits. If not, the contents of `contents` are undefined.
    #[inline]
    pub fn read(&self, message: &[u8], contents: &mut Contents) -> bool {
        contents.numbers = [-1; SLOTS];
        contents.has = [false; 2];
        contents.message_id += 1;
        let fits = self.run(&self.steps, message, 0, contents) == Some(message.len());
        fits && contents.has(Image::Main) && (!contents.has(Image::Preimage) || contents.operation == Operation::Update)
    }

    fn run(&self, steps: &Steps, message: &[u8], mut at: usize, contents: &mut Contents) -> Option<usize> {
        for step in &steps.0 {
            at = match step {
                Step::Const { content } => match_at(message, at, content)?,
                Step::Choice { choices } => choices.iter().find_map(|bytes| match_at(message, at, bytes))?,
                Step::Number { slot, most } => {
                    let (number, end) = json::positive(message, at)?;
                    if number > *most {
                        return None;
                    }
                    contents.numbers[*slot as usize] = number;
                    end
                }
                Step::Members { members } => members.match_at(message, at, contents.message_id, &mut contents.marks)?,
                Step::Row { image } => self.row(*image, message, at, contents)?,
                Step::AvroRow { image, fields } => {
                    for (field, kept) in fields.iter().zip(&mut contents.cells[*image as usize]) {
                        (*kept, at) = avro::field(field, message, at)?;
                    }
                    contents.has[*image as usize] = true;
                    at
                }
                Step::TextRow { image, binary } => {
                    for (&is_binary, kept) in binary.iter().zip(&mut contents.cells[*image as usize]) {
                        (*kept, at) = mysql::cell(message, at, is_binary)?;
                    }
                    contents.has[*image as usize] = true;
                    at
                }
                Step::CSVRow { image, quoted, dialect } => {
                    at = dialect.row(quoted, message, at, &mut contents.cells[*image as usize])?;
                    contents.has[*image as usize] = true;
                    at
                }
                Step::Forget { image } => {
                    contents.has[*image as usize] = false;
                    at
                }
                Step::AvroNumber { slot, most } => {
                    let (number, end) = avro::long(message, at)?;
                    if number < 1 || number > *most {
                        return None;
                    }
                    contents.numbers[*slot as usize] = number;
                    end
                }
                Step::AvroSkip { avro_type } => avro::value(*avro_type, message, at)?.1,
                Step::SetOperation { operation } => {
                    contents.operation = *operation;
                    at
                }
                Step::Branch { ways } => {
                    let (way, next) = ways.iter().find_map(|way| Some((way, match_at(message, at, &way.begin)?)))?;
                    self.run(&way.steps, message, next, contents)?
                }
            };
        }
        Some(at)
    }

    /// Reads the members of a row, and stops before the brace that ends it.
    #[inline]
    fn row(&self, image: Image, message: &[u8], mut at: usize, contents: &mut Contents) -> Option<usize> {
        let partial = self.partial && image == Image::Preimage;
        let mut first = true;
        for (head, kept) in self.heads.iter().zip(&mut contents.cells[image as usize]) {
            let start = if first { at } else { match_at(message, at, b",").unwrap_or(usize::MAX) };
            match match_at(message, start, head) {
                Some(next) => {
                    let (cell, next) = json::cell(message, next)?;
                    *kept = cell;
                    at = match_at(message, next, &self.tail)?;
                    first = false;
                }
                None if partial => *kept = Cell::MISSING,
                None => return None,
            }
        }
        contents.has[image as usize] = true;
        Some(at)
    }
}

#[cfg(test)]
mod tests;
