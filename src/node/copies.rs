//! Whether another copy of this addon is loaded in the process. Two copies are two registries: two queues that know nothing of each
//! other. On Linux the kernel says what is mapped; elsewhere `index.js` sees what its own thread has loaded.

use std::sync::atomic::{AtomicBool, Ordering};

/// This copy was alone when it was first asked: whichever comes later is the second, however often it is tried.
static FIRST: AtomicBool = AtomicBool::new(false);

/// The path of another copy that was mapped into this process before this one.
pub fn other() -> Option<String> {
    if FIRST.load(Ordering::Acquire) {
        return None;
    }
    #[cfg(target_os = "linux")]
    {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        let found = among(&maps, other as fn() -> Option<String> as usize);
        FIRST.store(found.is_none(), Ordering::Release);
        found
    }
    #[cfg(not(target_os = "linux"))]
    None
}

/// A line is `start-end perms offset device inode   path`.
#[cfg(any(target_os = "linux", test))]
fn among(maps: &str, own: usize) -> Option<String> {
    let mut files: Vec<(&str, &str)> = Vec::new();
    let mut own_inode = None;
    for line in maps.lines() {
        let mut fields = line.split_ascii_whitespace();
        let (Some(range), Some(inode)) = (fields.next(), fields.nth(3)) else { continue };
        let Some(path) = line.find('/').map(|at| &line[at..]) else { continue };
        let name = path.rsplit('/').next().unwrap_or(path).trim_end_matches(" (deleted)");
        if !(name.starts_with("queue_keeper.") && name.ends_with(".node")) {
            continue;
        }
        let mut ends = range.split('-').map(|end| usize::from_str_radix(end, 16));
        if let (Some(Ok(start)), Some(Ok(end))) = (ends.next(), ends.next())
            && (start..end).contains(&own)
        {
            own_inode = Some(inode);
        }
        files.push((inode, path));
    }
    let own_inode = own_inode?;
    files.into_iter().find(|(inode, _)| *inode != own_inode).map(|(_, path)| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::among;

    const MAPS: &str = "\
7f0000000000-7f0000010000 r-xp 00000000 08:01 11 /a/node_modules/k/queue_keeper.linux-x64-gnu.node
7f0000010000-7f0000020000 rw-p 00010000 08:01 11 /a/node_modules/k/queue_keeper.linux-x64-gnu.node
7f0000030000-7f0000040000 r-xp 00000000 08:01 99 /usr/lib/libc.so.6
7f0000050000-7f0000060000 rw-p 00000000 00:00 0
";

    #[test]
    fn one_copy_is_alone() {
        assert_eq!(among(MAPS, 0x7f00_0000_0100), None);
    }

    #[test]
    fn a_second_copy_is_named() {
        let line = "7f0000070000-7f0000080000 r-xp 00000000 08:01 12 /b b/queue_keeper.linux-x64-gnu.node\n";
        let found = among(&format!("{MAPS}{line}"), 0x7f00_0000_0100);
        assert_eq!(found.as_deref(), Some("/b b/queue_keeper.linux-x64-gnu.node"));
    }
}
