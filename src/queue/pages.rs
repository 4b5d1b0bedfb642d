//! Minutes in pages of 256, in order: what the buckets of a class and the counts over all classes lie in.

use super::time::Minute;

/// Minutes in a page.
pub const PAGE: usize = 256;

/// The page of a minute, and its place in it.
#[inline(always)]
pub fn split(minute: Minute) -> (u32, u8) {
    (minute >> 8, minute as u8)
}

/// Pages by number, in order; those that are not there are empty.
pub struct Pages<P> {
    pages: Vec<(u32, P)>,
}

impl<P> Default for Pages<P> {
    fn default() -> Self {
        Pages { pages: Vec::new() }
    }
}

impl<P> Pages<P> {
    /// Where the page is, or would be.
    #[inline]
    fn place(&self, number: u32) -> Result<usize, usize> {
        // Rows are due in the hours and days to come: pages follow one another, most of the time.
        if let Some((first, _)) = self.pages.first() {
            let guess = number.wrapping_sub(*first) as usize;
            if self.pages.get(guess).is_some_and(|page| page.0 == number) {
                return Ok(guess);
            }
        }
        self.pages.binary_search_by_key(&number, |page| page.0)
    }

    /// The page of this number.
    #[inline]
    pub fn get(&self, number: u32) -> Option<&P> {
        self.place(number).ok().map(|at| &self.pages[at].1)
    }

    /// The page of this number, to change it.
    #[inline]
    pub fn get_mut(&mut self, number: u32) -> Option<&mut P> {
        self.place(number).ok().map(|at| &mut self.pages[at].1)
    }

    /// The page of this number, made where there is none.
    #[inline]
    pub fn enter(&mut self, number: u32, make: impl FnOnce() -> P) -> &mut P {
        let at = self.place(number).unwrap_or_else(|at| {
            self.pages.insert(at, (number, make()));
            at
        });
        &mut self.pages[at].1
    }

    /// Takes a page away.
    pub fn remove(&mut self, number: u32) {
        if let Ok(at) = self.place(number) {
            self.pages.remove(at);
        }
    }

    /// The pages of this number and higher ones, in order.
    pub fn from(&self, number: u32) -> impl Iterator<Item = (u32, &P)> {
        let at = self.place(number).unwrap_or_else(|at| at);
        self.pages[at..].iter().map(|(number, page)| (*number, page))
    }

    /// Every page, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &P)> {
        self.pages.iter().map(|(number, page)| (*number, page))
    }

    /// Bytes allocated for the list of pages; what a page holds beside itself is the caller's to count.
    pub fn bytes(&self) -> usize {
        self.pages.capacity() * size_of::<(u32, P)>()
    }

    /// Panics where pages are out of order. For tests.
    pub fn validate(&self) {
        assert!(self.pages.is_sorted_by(|a, b| a.0 < b.0), "pages: out of order");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_found_whether_others_follow_it_or_are_missing() {
        let mut pages = Pages::default();
        let numbers = [5, 7, 6, 100, 0, u32::MAX >> 8, 8];
        for number in numbers {
            *pages.enter(number, || 0) += number;
            pages.validate();
        }
        for number in numbers {
            assert_eq!(pages.get(number), Some(&number));
        }
        assert_eq!((pages.get(1), pages.get(9)), (None, None));
        assert_eq!(pages.from(9).map(|(number, _)| number).next(), Some(100));
        pages.remove(0);
        pages.remove(9);
        assert_eq!(pages.iter().map(|(number, _)| number).collect::<Vec<_>>(), [5, 6, 7, 8, 100, u32::MAX >> 8]);
    }
}
