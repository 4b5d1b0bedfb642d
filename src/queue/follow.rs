//! Linked rows, several lists followed side by side: where a row is has to be read from the one before it, and so the waits for
//! memory of all of the lists overlap.

use smallvec::SmallVec;

use super::records::{Arena, NONE, RowId};

/// Lists followed side by side: more than the memory answers at a time.
pub const ABREAST: usize = 32;

/// A list to be followed.
pub struct Chain<T> {
    /// Its first row.
    pub row: RowId,
    /// How many rows of it are wanted, if there are so many.
    pub most: usize,
    /// What `met` is told the rows with.
    pub to: T,
}

/// Tells `met` the rows of these lists, those of each in order; where one ends, the next one takes its place. Their records have been
/// read by then, as whoever lists rows wants their keys.
pub fn follow<T>(arena: &Arena, chains: impl Iterator<Item = Chain<T>>, mut met: impl FnMut(&mut T, RowId)) {
    let mut waiting = chains.filter(|chain| chain.row != NONE && chain.most > 0);
    let mut abreast: SmallVec<[Chain<T>; ABREAST]> = waiting.by_ref().take(ABREAST).collect();
    let mut read = 0;
    while !abreast.is_empty() {
        let mut at = 0;
        while let Some(chain) = abreast.get_mut(at) {
            met(&mut chain.to, chain.row);
            let (next, some) = arena.warm_next(chain.row);
            chain.row = next;
            read ^= some;
            chain.most -= 1;
            if chain.row == NONE || chain.most == 0 {
                match waiting.next() {
                    Some(next) => *chain = next,
                    None => drop(abreast.swap_remove(at)),
                }
            }
            at += 1;
        }
    }
    std::hint::black_box(read);
}
