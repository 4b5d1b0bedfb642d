//! Compression of row keys: a [`Codec`] is an immutable symbol table that a [`Trainer`] learns from a sample of keys.
//!
//! The idea of a static table of byte strings, with codes on byte borders so that any single key decodes on its own,
//! is FSST's (P. Boncz, T. Neumann, V. Leis, "FSST: Fast Random Access String Compression", VLDB 2020). Different
//! here, for keys that are URLs: codes of one *and two* bytes, so that whole words, hosts and path heads are symbols;
//! symbols up to 64 bytes; and runs of digits packed as numbers.
//!
//! A code's first byte says what it is:
//!
//! | first byte | code |
//! |---|---|
//! | 0 | escape: the next byte is itself |
//! | 1 to 17 | a run of 3, 5, 7, 8, 9 or 10 digits, see `number.rs` |
//! | the next few, as many as the codec has leads | a symbol, named by this and the next byte |
//! | the rest | a symbol, or a lone byte, named by this byte |

mod number;
mod table;
mod train;
mod trie;

pub use train::{Trainer, learn};

use table::{MAX_SYMBOL, Span, Table};

const ESCAPE: u8 = 0;
const FIRST_NUMBER: u8 = 1;
const FIRST_LEAD: u8 = FIRST_NUMBER + number::LEADS;

/// First bytes that name a symbol, alone or with a second byte.
const NAMES: usize = 256 - FIRST_LEAD as usize;

/// First bytes given to two-byte codes at most, each good for 256 symbols.
const MAX_LEADS: usize = 14;
const MAX_SYMBOLS: usize = MAX_LEADS * 256;
/// Bytes of all symbols together, not counting what they share: keeps a codec below 128 KiB.
const MAX_BYTES: usize = 44 << 10;

/// Bytes of a symbol that are copied at once: most have no more, and the longest has a multiple of it.
const COPIED: usize = 32;

/// What a two-byte code is more than the number of its symbol.
const LONG: u16 = 256 * (FIRST_LEAD as u16 - 1);

/// An immutable symbol table: turns keys into codes and back, exactly, whatever the key's bytes.
///
/// A code is at most twice as long as its key. A codec takes at most 128 KiB.
pub struct Codec {
    /// The symbols and the lone bytes, numbered by their codes: the one byte, or from 256 on the two less [`LONG`].
    table: Table,
    /// By byte: the code of a lone byte; 0: none, so it is escaped.
    lone: Box<[u8; 256]>,
    /// First bytes that take a second one to name a symbol.
    leads: u8,
}

/// Bytes written for a code, of which its own are kept.
const WRITTEN: usize = 8;

/// The longest key that [`Codec::encode_after`] takes.
pub const MOST_TRAILED: usize = 4 * 1024;

/// Room for the code of a key, and for what is written behind it.
fn room_for(key: &[u8]) -> usize {
    2 * key.len() + WRITTEN
}

/// The key that a codec has encoded last, and how: keys of a walk come in order, so that each starts as the one before. Good for one codec.
#[derive(Default)]
pub struct Trail {
    key: Vec<u8>,
    /// Its code, and room for more.
    code: Vec<u8>,
    cuts: Vec<Cut>,
}

/// Where a step of encoding has ended, or the first begins.
#[derive(Clone, Copy, Default)]
struct Cut {
    /// In the key.
    key: u16,
    /// In the code.
    code: u16,
    /// How much of the key this step and those before it depend on; more than there is where they depend on its end.
    seen: u16,
}

impl Trail {
    /// Bytes of heap that it holds.
    pub fn heap_bytes(&self) -> usize {
        self.key.capacity() + self.code.capacity() + self.cuts.capacity() * size_of::<Cut>()
    }
}

/// What one code stands for.
enum Word {
    Symbol(Span),
    /// Digit count, value.
    Number(usize, u64),
    Escaped(u8),
}

impl Codec {
    /// From a table not yet finished.
    fn new(mut table: Table, lone: Box<[u8; 256]>, leads: u8) -> Codec {
        let named = lone.iter().zip(0..=u8::MAX).filter(|(code, _)| **code != 0);
        table.finish(named.map(|(code, byte)| (u16::from(*code), byte)));
        Codec { table, lone, leads }
    }

    /// Appends the code of `key` to `out`: the same key always gives the same code, at most twice as long.
    pub fn encode(&self, key: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        out.resize(start + room_for(key), 0);
        let code = self.encode_from(key, Cut::default(), &mut out[start..], |_| ());
        out.truncate(start + code);
    }

    /// The code of `key`, at most [`MOST_TRAILED`] bytes long; what it starts with as the key before it in `trail` did is not encoded again.
    pub fn encode_after<'a>(&self, trail: &'a mut Trail, key: &[u8]) -> &'a [u8] {
        let Trail { key: last, code, cuts } = trail;
        let shared = shared(last, key);
        while cuts.last().is_some_and(|cut| usize::from(cut.seen) > shared) {
            cuts.pop();
        }
        let from = cuts.last().copied().unwrap_or_default();
        last.truncate(shared);
        last.extend_from_slice(&key[shared..]);
        if code.len() < room_for(key) {
            code.resize(room_for(key), 0);
        }
        let end = self.encode_from(key, from, code, |cut| cuts.push(cut));
        &code[..end]
    }

    /// Encodes `key` from a cut on into `out`, which has room for it; returns where its code ends. `note` is told of each cut.
    #[inline(always)]
    fn encode_from(&self, key: &[u8], from: Cut, out: &mut [u8], mut note: impl FnMut(Cut)) -> usize {
        let [mut at, mut end, mut seen] = [from.key, from.code, from.seen].map(usize::from);
        while let Some((step, length, looked)) = step(&self.table, key, at) {
            let (code, bytes) = match step {
                Step::Number => number::encode(&key[at..], length, FIRST_NUMBER),
                Step::Symbol(number) => {
                    // Both bytes, then cut: one or two cannot be predicted.
                    let two = number > 255;
                    let code = if two { number + LONG } else { number << 8 };
                    (u64::from(code.swap_bytes()), 1 + usize::from(two))
                }
                Step::Byte => match self.lone[usize::from(key[at])] {
                    0 => (u64::from(ESCAPE) | u64::from(key[at]) << 8, 2),
                    code => (u64::from(code), 1),
                },
            };
            // As many bytes as any code takes, then cut: costs less than a copy of any size.
            out[end..end + WRITTEN].copy_from_slice(&code.to_le_bytes());
            end += bytes;
            seen = seen.max(at + looked);
            at += length;
            note(Cut { key: at as u16, code: end as u16, seen: seen as u16 });
        }
        end
    }

    /// Appends the key that `code` is the code of to `out`.
    ///
    /// Total: bytes that [`encode`](Self::encode) never made decode to something too, at most 64 times as long.
    pub fn decode(&self, code: &[u8], out: &mut Vec<u8>) {
        let bytes = self.table.bytes();
        let mut at = 0;
        while let Some((word, next)) = self.word(code, at) {
            at = next;
            // Copies of fixed size, cut afterwards, cost less than one of any size.
            let end = match word {
                Word::Symbol(span) => {
                    let (end, mut from) = (out.len() + span.length(), span.offset());
                    out.extend_from_slice(&bytes[from..][..COPIED]);
                    while out.len() < end {
                        from += COPIED;
                        out.extend_from_slice(&bytes[from..][..COPIED]);
                    }
                    end
                }
                Word::Number(digits, value) => {
                    let end = out.len() + digits;
                    out.extend_from_slice(&number::text(value, digits));
                    end
                }
                Word::Escaped(byte) => {
                    out.push(byte);
                    continue;
                }
            };
            out.truncate(end);
        }
    }

    /// Whether `code` decodes to exactly `key`, without decoding it.
    pub fn matches(&self, code: &[u8], key: &[u8]) -> bool {
        let bytes = self.table.bytes();
        let (mut at, mut rest) = (0, key);
        while let Some((word, next)) = self.word(code, at) {
            at = next;
            let (equal, length) = match word {
                Word::Symbol(span) => (span.starts(rest, bytes), span.length()),
                Word::Number(0, _) => (true, 0),
                Word::Number(digits, value) => (number::starts(rest, digits, value), digits),
                Word::Escaped(byte) => (rest.first() == Some(&byte), 1),
            };
            if !equal {
                return false;
            }
            rest = &rest[length..];
        }
        rest.is_empty()
    }

    /// Appends all that the codec is to `out`, for [`read`](Self::read).
    pub fn write(&self, out: &mut Vec<u8>) {
        out.push(self.leads);
        out.extend_from_slice(&*self.lone);
        let numbers = self.table.sorted();
        out.extend_from_slice(&(numbers.len() as u16).to_le_bytes());
        for number in numbers {
            let symbol = self.table.symbol(number);
            let code = if number < 256 { number } else { number + LONG };
            out.extend_from_slice(&code.to_le_bytes());
            out.push(symbol.len() as u8);
            out.extend_from_slice(symbol);
        }
    }

    /// The codec that [`write`](Self::write) wrote; `None` for bytes that it cannot have written.
    pub fn read(mut from: &[u8]) -> Option<Codec> {
        let mut take = |n: usize| from.split_off(..n);
        let leads = take(1)?[0];
        if usize::from(leads) > MAX_LEADS {
            return None;
        }
        let first_short = u16::from(FIRST_LEAD + leads);
        let lone: Box<[u8; 256]> = Box::new(*take(256)?.first_chunk()?);
        let mut named = std::collections::HashSet::new();
        for name in lone.iter().filter(|name| **name != 0) {
            if u16::from(*name) < first_short || !named.insert(u16::from(*name)) {
                return None;
            }
        }
        let mut table = Table::default();
        let (mut last, mut bytes): (&[u8], _) = (&[], 0);
        let symbols = u16::from_le_bytes(*take(2)?.first_chunk()?);
        if usize::from(symbols) > MAX_SYMBOLS {
            return None;
        }
        for _ in 0..symbols {
            let name = u16::from_le_bytes(*take(2)?.first_chunk()?);
            let length = usize::from(take(1)?[0]);
            let symbol = take(length)?;
            bytes += length;
            let named_well = match name.to_be_bytes() {
                [0, _] => name >= first_short,
                [lead, _] => lead >= FIRST_LEAD && u16::from(lead) < first_short,
            };
            if !(2..=MAX_SYMBOL).contains(&length)
                || bytes > MAX_BYTES
                || symbol <= last
                || !named_well
                || !named.insert(name)
            {
                return None;
            }
            table.push(symbol, if name < 256 { name } else { name - LONG });
            last = symbol;
        }
        take(1).is_none().then(|| Codec::new(table, lone, leads))
    }

    /// Bytes of heap that the codec holds.
    pub fn heap_bytes(&self) -> usize {
        self.table.heap_bytes() + size_of_val(&*self.lone)
    }

    /// The word at `at` in `code` and where the next one starts; `None` at the end, and where the code is cut short.
    #[inline(always)]
    fn word(&self, code: &[u8], at: usize) -> Option<(Word, usize)> {
        let first = *code.get(at)?;
        if first >= FIRST_LEAD {
            let lead = usize::from(first - FIRST_LEAD);
            let two = lead < usize::from(self.leads);
            // One byte or two cannot be predicted, so there is no branch on it: the second is read either way.
            let second = usize::from(code.get(at + 1).copied().unwrap_or(0));
            let place = if two { 256 + lead * 256 + second } else { usize::from(first) };
            let next = at + 1 + usize::from(two);
            return (next <= code.len()).then(|| (Word::Symbol(self.table.span(place)), next));
        }
        if first == ESCAPE {
            return Some((Word::Escaped(*code.get(at + 1)?), at + 2));
        }
        let (digits, value, payload) = number::decode(first - FIRST_NUMBER, &code[at + 1..])?;
        Some((Word::Number(digits, value), at + 1 + payload))
    }
}

/// How a text is cut: the trainer counts what the encoder will do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// One byte, by its own code or an escape.
    Byte,
    /// A run of digits, packed.
    Number,
    /// The symbol of that number.
    Symbol(u16),
}

/// The step that `text` takes at `at`, its length in bytes, and how many bytes were looked at to tell, more than there are where the end
/// of the text said something; `None` at the end.
///
/// Greedy: a number, else the longest symbol. A shortest parse saved 1.5 % at most, for more than twice the time, since
/// the trainer makes symbols that end where words end (`train::may_join`).
#[inline(always)]
fn step(table: &Table, text: &[u8], at: usize) -> Option<(Step, usize, usize)> {
    let mut looked = 1;
    if text.get(at)?.is_ascii_digit() {
        let run = number::run(&text[at..]);
        let digits = number::split(run);
        looked = run + 1;
        if digits > 0 {
            return Some((Step::Number, digits, looked));
        }
    }
    let (number, length, compared) = table.longest(text, at);
    let looked = looked.max(compared);
    Some(if length == 0 { (Step::Byte, 1, looked) } else { (Step::Symbol(number), length, looked) })
}

/// How many bytes two keys start with in common.
fn shared(one: &[u8], other: &[u8]) -> usize {
    const WORD: usize = 8;
    let most = one.len().min(other.len());
    let mut at = 0;
    while let (Some(a), Some(b)) = (one[at..].first_chunk::<WORD>(), other[at..].first_chunk()) {
        let differ = u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b);
        if differ != 0 {
            return at + differ.trailing_zeros() as usize / 8;
        }
        at += WORD;
    }
    at + one[at..most].iter().zip(&other[at..most]).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests;
