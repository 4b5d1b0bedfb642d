//! How many rows are due in each minute, over all classes: what makes the number due, and what is coming, exact without
//! asking every class.

use super::pages::{PAGE, Pages, split};
use super::time::Minute;

struct Page {
    rows: u64,
    minutes: [u32; PAGE],
}

/// Rows by due minute.
#[derive(Default)]
pub struct MinuteCounts {
    pages: Pages<Box<Page>>,
}

impl MinuteCounts {
    /// Counts a row in.
    pub fn add(&mut self, minute: Minute) {
        let (number, slot) = split(minute);
        let page = self.pages.enter(number, || Box::new(Page { rows: 0, minutes: [0; PAGE] }));
        page.rows += 1;
        page.minutes[usize::from(slot)] += 1;
    }

    /// Counts a row out.
    pub fn remove(&mut self, minute: Minute) {
        let (number, slot) = split(minute);
        if let Some(page) = self.pages.get_mut(number) {
            page.rows -= 1;
            page.minutes[usize::from(slot)] -= 1;
            if page.rows == 0 {
                self.pages.remove(number);
            }
        }
    }

    /// Rows due in `from` to `to`, both included.
    pub fn between(&self, from: Minute, to: Minute) -> u64 {
        if from > to {
            return 0;
        }
        let mut rows = 0;
        for (number, page) in self.pages.from(from >> 8).take_while(|(number, _)| *number <= to >> 8) {
            let start = if number == from >> 8 { from as usize % PAGE } else { 0 };
            let end = if number == to >> 8 { to as usize % PAGE } else { PAGE - 1 };
            rows += match (start, end) {
                (0, 255) => page.rows,
                _ => page.minutes[start..=end].iter().map(|rows| u64::from(*rows)).sum(),
            };
        }
        rows
    }

    /// The first minute at or behind `minute` in which a row is due.
    pub fn first_from(&self, minute: Minute) -> Option<Minute> {
        for (number, page) in self.pages.from(minute >> 8) {
            let start = if number == minute >> 8 { minute as usize % PAGE } else { 0 };
            if let Some(at) = page.minutes[start..].iter().position(|rows| *rows > 0) {
                return Some(number << 8 | (start + at) as u32);
            }
        }
        None
    }

    /// Bytes allocated.
    pub fn bytes(&self) -> usize {
        self.pages.bytes() + self.pages.iter().count() * size_of::<Page>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_over_pages_and_finds_the_next() {
        let mut counts = MinuteCounts::default();
        let minutes = [0, 1, 255, 256, 257, 700, 70_000, Minute::MAX];
        for minute in minutes {
            counts.add(minute);
            counts.add(minute);
        }
        for from in minutes {
            for to in minutes {
                let expected = minutes.iter().filter(|minute| (from..=to).contains(minute)).count() as u64 * 2;
                assert_eq!(counts.between(from, to), if from > to { 0 } else { expected }, "{from}..={to}");
            }
        }
        assert_eq!(counts.first_from(258), Some(700));
        assert_eq!(counts.first_from(701), Some(70_000));
        for minute in minutes {
            counts.remove(minute);
            counts.remove(minute);
        }
        assert_eq!((counts.first_from(0), counts.bytes()), (None, counts.pages.bytes()));
    }
}
