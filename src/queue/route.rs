//! Which route a URL takes: its WHATWG pathname against an ordered list of rules.
//!
//! The pathname must be what `new URL(url).pathname` is in JavaScript. The `url` crate knows how; it also allocates and
//! takes ten times longer than all the rest, and nearly every URL of a sitemap is written so plainly that its pathname
//! is a slice of it. `plain_pathname_on` finds that slice, and leaves the URL to the crate whenever in doubt.
//!
//! Where the crate and Node differ (compared over 27,000 odd URLs, Node 20): a dot segment after a segment like a
//! Windows drive (`https://a.b/C:/../x`), which the crate does not remove; `file:` URLs with empty segments; and host
//! names that break the rules of right-to-left scripts, which Node lets through. Pages have none of these.

use super::owner::utf16_units;
use serde_json::Value;
use std::borrow::Cow;
use std::ops::RangeInclusive;
use url::Url;

/// How a rule's path is compared with a pathname.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Match {
    /// The pathname is the path.
    Exact,
    /// The pathname starts with the path.
    Prefix,
    /// The path is somewhere in the pathname.
    Contains,
}

impl Match {
    fn named(name: &str) -> Option<Match> {
        match name {
            "exact" => Some(Match::Exact),
            "prefix" => Some(Match::Prefix),
            "contains" => Some(Match::Contains),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Match::Exact => "exact",
            Match::Prefix => "prefix",
            Match::Contains => "contains",
        }
    }
}

/// What a rule says of the pages it matches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// They have the rule's route.
    Prerender,
    /// They are unrouted, whatever the rules after this one say.
    Passthrough,
}

/// A rule that was found valid.
#[derive(Clone, PartialEq, Debug)]
pub struct Rule {
    /// How `path` is compared.
    pub matches: Match,
    /// Compared as it stands: what a pathname percent-encodes must be written percent-encoded.
    pub path: String,
    /// What the rule says of the pages it matches.
    pub mode: Mode,
    /// The cadence, in ms, of pages that carry none.
    pub render_interval: Option<f64>,
}

/// A rule, or a part of one, that was left out.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct InvalidRule {
    /// Its place in the list that it came in: `what` says which of the two.
    pub index: usize,
    /// Which rule, what is wrong, and what to do: a sentence for the operator.
    pub what: String,
}

/// The ordered list of rules, ready to be asked.
///
/// ```
/// use queue_keeper::queue::route::Routes;
/// use serde_json::json;
///
/// let rules = [json!({"match": "prefix", "path": "/products/", "renderInterval": 3_600_000})];
/// let (routes, invalid) = Routes::new(&rules, &[json!("/preview")]);
/// assert!(invalid.is_empty());
/// assert_eq!(routes.matched(b"https://example.com/products/1?size=2"), Some(0));
/// assert_eq!(routes.matched(b"https://example.com/products/preview/1"), None);
/// assert_eq!(routes.name(0), "route:prefix:/products/");
/// ```
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Routes {
    /// In the order in which they are asked, up to the last one that gives a route.
    matchers: Vec<Matcher>,
    rules: Vec<Rule>,
    names: Vec<String>,
}

impl Routes {
    /// The routes of a host's configuration, and what of it was left out.
    ///
    /// `exclude` comes first, each pattern as a `contains` rule in mode `passthrough`. No value fails the whole: a rule
    /// that is not valid is left out, one whose `renderInterval` is not valid goes without it, and both are reported.
    pub fn new(rules: &[Value], exclude: &[Value]) -> (Routes, Vec<InvalidRule>) {
        let mut routes = Routes::default();
        let mut invalid = Vec::new();
        for (index, pattern) in exclude.iter().enumerate() {
            match pattern.as_str() {
                Some(pattern) if !pattern.is_empty() => {
                    routes.matchers.push(Matcher::new(Match::Contains, pattern, None));
                }
                _ => invalid.push(InvalidRule {
                    index,
                    what: format!(
                        "excludePathPatterns[{index}] is left out: it must be a part of a path such as \"/preview\", \
                         and is {}; correct or remove it.",
                        shown(Some(pattern)),
                    ),
                }),
            }
        }
        for (index, value) in rules.iter().enumerate() {
            let mut report =
                |what: String| invalid.push(InvalidRule { index, what: format!("routes[{index}] {what}") });
            match checked(value) {
                Ok((rule, interval_fault)) => {
                    interval_fault.into_iter().for_each(&mut report);
                    routes.push(rule);
                }
                Err(fault) => report(fault),
            }
        }
        // Where no rule with a route follows, matching or not comes to the same.
        let last = routes.matchers.iter().rposition(|matcher| matcher.rule.is_some());
        routes.matchers.truncate(last.map_or(0, |last| last + 1));
        (routes, invalid)
    }

    fn push(&mut self, rule: Rule) {
        if rule.mode == Mode::Passthrough {
            self.matchers.push(Matcher::new(rule.matches, &rule.path, None));
            return;
        }
        self.matchers.push(Matcher::new(rule.matches, &rule.path, Some(self.rules.len())));
        self.names.push(format!("route:{}:{}", rule.matches.name(), rule.path));
        self.rules.push(rule);
    }

    /// The valid prerender rules, in order.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Which of the [`rules`](Routes::rules) gives `url` its route. `None`, for unrouted, where the first match is a
    /// passthrough, where nothing matches, and where `url` cannot be parsed.
    pub fn matched(&self, url: &[u8]) -> Option<usize> {
        self.matched_on(url, &mut &[][..])
    }

    /// [`Self::matched`] for one URL after the other: most are of the `origin` that the one before it was of.
    pub(super) fn matched_on<'a>(&self, url: &'a [u8], origin: &mut &'a [u8]) -> Option<usize> {
        if self.matchers.is_empty() {
            return None;
        }
        match plain_pathname_on(url, origin) {
            Some(pathname) => self.of_pathname(pathname),
            None => self.of_pathname(parsed_pathname(url)?.as_bytes()),
        }
    }

    fn of_pathname(&self, pathname: &[u8]) -> Option<usize> {
        let head = head(pathname);
        let first = self.matchers.iter().find(|matcher| matcher.matches(pathname, head))?;
        first.rule
    }

    /// The name of a rule's route, `route:<match>:<path>`. Panics where there is no such rule.
    pub fn name(&self, rule: usize) -> &str {
        &self.names[rule]
    }

    /// A rule's own cadence in ms, for the pages that carry none. Panics where there is no such rule.
    pub fn render_interval(&self, rule: usize) -> Option<f64> {
        self.rules[rule].render_interval
    }
}

/// A rule as the host wrote it, checked: the rule and what is wrong with its interval, or what is wrong with the rule.
fn checked(value: &Value) -> Result<(Rule, Option<String>), String> {
    let Some(fields) = value.as_object() else {
        return Err(format!(
            "is left out: it must be an object {{match, path}}, and is {}; correct it.",
            shown(Some(value))
        ));
    };
    let wrong = |field: &str, wanted: &str| {
        format!("is left out: its {field} must be {wanted}, and is {}; correct it.", shown(fields.get(field)))
    };
    let matches = fields.get("match").and_then(Value::as_str).and_then(Match::named);
    let matches = matches.ok_or_else(|| wrong("match", "\"exact\", \"prefix\" or \"contains\""))?;
    let path = fields.get("path").and_then(Value::as_str).filter(|path| !path.is_empty());
    let path = path.ok_or_else(|| wrong("path", "a path such as \"/products/\""))?;
    if matches != Match::Contains && !path.starts_with('/') {
        return Err(wrong("path", &format!("a path that starts with \"/\" where match is \"{}\"", matches.name())));
    }
    let mode = match fields.get("mode") {
        None | Some(Value::Null) => Mode::Prerender,
        Some(mode) => match mode.as_str() {
            Some("prerender") => Mode::Prerender,
            Some("passthrough") => Mode::Passthrough,
            _ => return Err(wrong("mode", "\"prerender\" or \"passthrough\"")),
        },
    };
    // Null is what JSON makes of NaN and of Infinity, so it is a mistake to be told of, unlike a field not there.
    let interval = fields.get("renderInterval");
    let render_interval = interval.and_then(Value::as_f64).filter(|interval| interval.is_finite() && *interval > 0.0);
    let fault = (interval.is_some() && render_interval.is_none()).then(|| {
        format!(
            "goes without its renderInterval: it must be a number of milliseconds above 0, and is {}; correct it.",
            shown(interval),
        )
    });
    Ok((Rule { matches, path: path.to_owned(), mode, render_interval }, fault))
}

/// A value as an operator may recognise it, cut where it is long.
fn shown(value: Option<&Value>) -> String {
    const LONGEST: usize = 60;
    match value {
        None => "missing".to_owned(),
        Some(Value::Array(_)) => "a list".to_owned(),
        Some(Value::Object(_)) => "an object".to_owned(),
        Some(value) => {
            let text = value.to_string();
            match text.char_indices().nth(LONGEST) {
                Some((cut, _)) => format!("{}...", &text[..cut]),
                None => text,
            }
        }
    }
}

/// A rule made ready for comparing.
#[derive(Clone, PartialEq, Debug)]
struct Matcher {
    how: Match,
    path: Box<[u8]>,
    /// The [`head`] of `path` and the bytes of it that a matching pathname must have: it turns nearly every other
    /// pathname away with one comparison. The mask is 0 for `Contains`.
    head: u64,
    mask: u64,
    /// For `Contains`: the two places of `path` that are looked for first.
    probes: [usize; 2],
    /// The prerender rule; none for a passthrough.
    rule: Option<usize>,
}

impl Matcher {
    fn new(how: Match, path: &str, rule: Option<usize>) -> Matcher {
        let path: Box<[u8]> = path.as_bytes().into();
        let mask = match how {
            // The zeros past the end of a short path are part of it: the pathname must end there too.
            Match::Exact => !0,
            Match::Prefix => match path.len() {
                0..=8 => !(!0 << (8 * path.len().saturating_sub(1))),
                _ => !0,
            },
            Match::Contains => 0,
        };
        let head = if how == Match::Contains { 0 } else { head(&path) };
        Matcher { head, mask, probes: probes(&path), how, path, rule }
    }

    fn matches(&self, pathname: &[u8], head: u64) -> bool {
        (head ^ self.head) & self.mask == 0
            && match self.how {
                Match::Exact => *pathname == *self.path,
                Match::Prefix => pathname.starts_with(&self.path),
                Match::Contains => self.is_within(pathname),
            }
    }

    fn is_within(&self, pathname: &[u8]) -> bool {
        let Some(last) = pathname.len().checked_sub(self.path.len()) else { return false };
        let [(ones, one), (others, other)] =
            self.probes.map(|probe| (&pathname[probe..=probe + last], self.path[probe]));
        // Sixteen places at a time, without a branch among them, is what the compiler turns into vector code.
        let mut at = 0;
        while at <= last {
            // What is left at the end is looked at with some of what was before it, in one go as well.
            let from = at.min((last + 1).saturating_sub(16));
            let (Some(ones), Some(others)) = (ones[from..].first_chunk::<16>(), others[from..].first_chunk::<16>())
            else {
                return self.is_at_one_of(0..=last, pathname);
            };
            let any = (0..16).fold(false, |any, at| any | ((ones[at] == one) & (others[at] == other)));
            if any && self.is_at_one_of(from..=from + 15, pathname) {
                return true;
            }
            at += 16;
        }
        false
    }

    // Apart, for it is seldom called and would take the registers of the loop that calls it.
    #[inline(never)]
    fn is_at_one_of(&self, mut places: RangeInclusive<usize>, pathname: &[u8]) -> bool {
        let [one, other] = self.probes;
        places.any(|at| {
            pathname[at + one] == self.path[one]
                && pathname[at + other] == self.path[other]
                && pathname[at..].starts_with(&self.path)
        })
    }
}

/// The two places of a path whose bytes are the least likely in any pathname.
fn probes(path: &[u8]) -> [usize; 2] {
    // From the most common on; what is not listed is rare enough.
    const COMMON: &[u8] = b"/-eaoitrnscldupmhg";
    let commonness =
        |&at: &usize| COMMON.iter().position(|&byte| byte == path[at]).map_or(0, |rank| COMMON.len() - rank);
    let first = (0..path.len()).min_by_key(commonness).unwrap_or(0);
    let second = (0..path.len()).filter(|&at| at != first).min_by_key(commonness).unwrap_or(first);
    [first, second]
}

/// The eight bytes after the first, which is a slash nearly always; zeros where there are fewer.
fn head(path: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    let after = path.get(1..).unwrap_or_default();
    match after.first_chunk() {
        Some(first) => bytes = *first,
        None => bytes[..after.len()].copy_from_slice(after),
    }
    u64::from_le_bytes(bytes)
}

/// What a key may end with that is not of its URL: the delimiter and a configured device type.
///
/// ```
/// use queue_keeper::queue::route::Devices;
///
/// let devices = Devices::new("|", &["desktop".into(), "mobile".into()]);
/// assert_eq!(devices.url_of(b"https://example.com/|mobile"), b"https://example.com/");
/// assert_eq!(devices.url_of(b"https://example.com/|tablet"), b"https://example.com/|tablet");
/// ```
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Devices {
    suffixes: Vec<Suffix>,
}

#[derive(Clone, PartialEq, Debug)]
struct Suffix {
    bytes: Box<[u8]>,
    /// Its last eight bytes, and which bits of these it has: nearly every key is told by one comparison.
    end: u64,
    mask: u64,
}

impl Devices {
    /// What follows the last delimiter of a key is compared with the device types.
    pub fn new(delimiter: &str, device_types: &[String]) -> Devices {
        let mut suffixes = Vec::new();
        for device in device_types.iter().filter(|_| !delimiter.is_empty()) {
            let bytes = [delimiter.as_bytes(), device.as_bytes()].concat();
            // Where another delimiter follows, what follows that one counts.
            if bytes.windows(delimiter.len()).rposition(|bytes| bytes == delimiter.as_bytes()) == Some(0) {
                let mut end = [0; 8];
                let least = bytes.len().min(8);
                end[8 - least..].copy_from_slice(&bytes[bytes.len() - least..]);
                let mask = !0 << (64 - 8 * least);
                suffixes.push(Suffix { bytes: bytes.into(), end: u64::from_le_bytes(end), mask });
            }
        }
        Devices { suffixes }
    }

    /// The part of a key that is the URL: up to the last delimiter, when what follows is a configured device type, and
    /// otherwise the whole key.
    pub fn url_of<'a>(&self, key: &'a [u8]) -> &'a [u8] {
        let end = key.last_chunk().map(|end| u64::from_le_bytes(*end));
        let ends = |suffix: &&Suffix| match end {
            Some(end) if (end ^ suffix.end) & suffix.mask != 0 => false,
            Some(_) if suffix.bytes.len() <= 8 => true,
            _ => key.ends_with(&suffix.bytes),
        };
        match self.suffixes.iter().find(ends) {
            Some(suffix) => &key[..key.len() - suffix.bytes.len()],
            None => key,
        }
    }
}

/// The pathname as the `url` crate finds it. A URL is a `USVString` in JavaScript: a lone surrogate in it is U+FFFD.
fn parsed_pathname(url: &[u8]) -> Option<String> {
    let text = match str::from_utf8(url) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => {
            let replaced = char::decode_utf16(utf16_units(url)).map(|char| char.unwrap_or(char::REPLACEMENT_CHARACTER));
            Cow::Owned(replaced.collect())
        }
    };
    Url::parse(&text).ok().map(|url| url.path().to_owned())
}

/// The pathname of a URL so plain that parsing changes nothing in it; `None` wherever that is not certain. `origin` is one found to be
/// plain, with the slash that ends it, or empty; it becomes the URL's.
fn plain_pathname_on<'a>(url: &'a [u8], origin: &mut &'a [u8]) -> Option<&'a [u8]> {
    if !origin.is_empty() && url.starts_with(origin) {
        return plain_path(&url[origin.len() - 1..]);
    }
    let after_scheme = url.strip_prefix(b"https://").or_else(|| url.strip_prefix(b"http://"))?;
    let (host, mut rest) = split_plain_host(after_scheme)?;
    // Past this length somebody's limit might be met. And a last label that starts with a letter is neither a number
    // nor the end of an IPv4 address.
    let last_label = host.iter().rposition(|&byte| byte == b'.').map_or(0, |dot| dot + 1);
    if host.len() > 253 || !host[last_label].is_ascii_lowercase() {
        return None;
    }
    if let [b':', after @ ..] = rest {
        let digits = after.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(after.len());
        // Four digits are never above 65535.
        if digits > 4 {
            return None;
        }
        rest = &after[digits..];
    }
    match rest.first() {
        None | Some(b'?' | b'#') => Some(b"/"),
        Some(b'/') => {
            *origin = &url[..=url.len() - rest.len()];
            plain_path(rest)
        }
        Some(_) => None,
    }
}

/// A host of lower-case letters and digits, with single dots and hyphens between them, and what follows. A double
/// hyphen may be punycode, and an empty label is odd: neither is plain.
fn split_plain_host(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut at = 0;
    loop {
        let run = text[at..].iter().take_while(|byte| IN_HOST[usize::from(**byte)]).count();
        if run == 0 {
            return None;
        }
        at += run;
        match text.get(at) {
            Some(b'.' | b'-') => at += 1,
            _ => return Some(text.split_at(at)),
        }
    }
}

/// The lower-case letters and the digits. A table, since a look-up takes half the time of two comparisons.
static IN_HOST: [bool; 256] = {
    let mut bytes = [false; 256];
    let mut byte = b'0';
    while byte <= b'z' {
        bytes[byte as usize] = byte.is_ascii_lowercase() || byte.is_ascii_digit();
        byte += 1;
    }
    bytes
};

/// What a byte means to a path that should be taken as it stands.
#[derive(Clone, Copy, PartialEq)]
enum Byte {
    Plain,
    /// May be a dot, and with a slash before it a dot segment.
    Dotlike,
    /// `?` and `#`.
    End,
    /// Percent-encoded, removed, or turned into another.
    Changed,
}

static BYTES: [Byte; 256] = {
    let mut bytes = [Byte::Changed; 256];
    let mut byte = b'!';
    while byte <= b'~' {
        bytes[byte as usize] = match byte {
            b'.' | b'%' => Byte::Dotlike,
            b'?' | b'#' => Byte::End,
            b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}' => Byte::Changed,
            _ => Byte::Plain,
        };
        byte += 1;
    }
    bytes
};

/// The path that `text`, which starts with its slash, starts with.
fn plain_path(text: &[u8]) -> Option<&[u8]> {
    let mut at = 1;
    loop {
        // Sixteen bytes that are all plain, as nearly all are, take a few vector instructions.
        while let (Some(before), Some(here)) = (text[at - 1..].first_chunk::<16>(), text[at..].first_chunk::<16>()) {
            if !all_plain(before, here) {
                break;
            }
            at += 16;
        }
        if text.len() - at < 16
            && let (Some((_, ending)), Some(here)) = (text.split_last(), text.last_chunk::<16>())
            && let Some(before) = ending.last_chunk::<16>()
            && all_plain(before, here)
        {
            return Some(text);
        }
        let stop = text.len().min(at + 16);
        while at < stop {
            match BYTES[usize::from(text[at])] {
                Byte::Plain => {}
                Byte::Dotlike if text[at - 1] == b'/' && may_be_dot(&text[at..]) => return None,
                Byte::Dotlike => {}
                Byte::End => return Some(&text[..at]),
                Byte::Changed => return None,
            }
            at += 1;
        }
        if at == text.len() {
            return Some(text);
        }
    }
}

/// Whether a segment that starts so may be `.` or `..`, in any spelling.
fn may_be_dot(segment: &[u8]) -> bool {
    matches!(segment, [b'.', ..] | [b'%', b'2', b'e' | b'E', ..])
}

/// Whether none of the bytes `here` needs a closer look, each with the byte before it. It errs to the safe side: which
/// bytes it names is what takes the fewest comparisons.
fn all_plain(before: &[u8; 16], here: &[u8; 16]) -> bool {
    let doubtful = |at: usize| {
        let byte = here[at];
        (byte <= b'#')
            | (byte >= b'{')
            | (byte & 0xFC == b'<') // < = > ?
            | (byte & 0xFD == b'\\') // \ ^
            | (byte == b'`')
            | ((before[at] == b'/') & ((byte == b'.') | (byte == b'%')))
    };
    !(0..16).fold(false, |any, at| any | doubtful(at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn routes(rules: &[Value], exclude: &[Value]) -> Routes {
        let (routes, invalid) = Routes::new(rules, exclude);
        assert_eq!(invalid, []);
        routes
    }

    fn rule(matches: &str, path: &str) -> Value {
        json!({"match": matches, "path": path})
    }

    fn plain_pathname(url: &[u8]) -> Option<&[u8]> {
        plain_pathname_on(url, &mut &[][..])
    }

    fn pathname(url: &str) -> Option<String> {
        match plain_pathname(url.as_bytes()) {
            Some(path) => Some(str::from_utf8(path).unwrap().to_owned()),
            None => parsed_pathname(url.as_bytes()),
        }
    }

    fn random(seed: u64) -> impl FnMut(usize) -> usize {
        let mut state = seed;
        move |below| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 33) as usize) % below
        }
    }

    #[test]
    fn the_first_match_wins() {
        let routes = routes(
            &[
                rule("exact", "/a"),
                rule("prefix", "/a"),
                rule("contains", "z"),
                json!({"match": "prefix", "path": "/secret/", "mode": "passthrough"}),
                rule("exact", "/a"),
                rule("prefix", "/"),
            ],
            &[],
        );
        let matched = |path: &str| routes.matched(format!("https://example.com{path}").as_bytes());
        assert_eq!(matched("/a"), Some(0));
        assert_eq!(matched("/a?b#c"), Some(0));
        assert_eq!(matched("/a/"), Some(1));
        assert_eq!(matched("/az"), Some(1));
        assert_eq!(matched("/secret/z"), Some(2));
        assert_eq!(matched("/secret/y"), None);
        // The passthrough rule has no index: prerender rules are counted alone.
        assert_eq!(matched("/b"), Some(4));
        assert_eq!(matched("?z"), Some(4));
        assert_eq!(routes.name(4), "route:prefix:/");
        assert_eq!(routes.rules().len(), 5);
    }

    #[test]
    fn what_is_excluded_is_unrouted_before_any_rule_is_asked() {
        let routes = routes(&[rule("prefix", "/")], &[json!("/cart"), json!("~")]);
        assert_eq!(routes.matched(b"https://example.com/shop/cart/1"), None);
        assert_eq!(routes.matched(b"https://example.com/a~b"), None);
        assert_eq!(routes.matched(b"https://example.com/shop?/cart"), Some(0));
    }

    #[test]
    fn what_cannot_be_parsed_is_unrouted() {
        let routes = routes(&[rule("prefix", "/"), rule("contains", "a")], &[]);
        for url in [
            "",
            "/a",
            "a",
            "https://",
            "https:///",
            "https://a b/a",
            "https://1.2.3.256/a",
            "https://a:65536/a",
            "//a/a",
        ] {
            assert_eq!(routes.matched(url.as_bytes()), None, "{url}");
        }
    }

    #[test]
    fn without_rules_everything_is_unrouted() {
        let (routes, _) = Routes::new(&[], &[json!("x")]);
        assert_eq!(routes, Routes::default());
        assert_eq!(routes.matched(b"https://example.com/"), None);
    }

    #[test]
    fn a_rules_interval_is_that_of_its_pages() {
        let rules = [
            json!({"match": "prefix", "path": "/a", "renderInterval": 3_600_000}),
            json!({"match": "prefix", "path": "/b", "renderInterval": 0.5, "mode": null}),
            json!({"match": "prefix", "path": "/c", "mode": "prerender", "colour": "blue"}),
        ];
        let routes = routes(&rules, &[]);
        assert_eq!([0, 1, 2].map(|rule| routes.render_interval(rule)), [Some(3_600_000.0), Some(0.5), None]);
    }

    #[test]
    fn an_invalid_rule_is_left_out_and_reported_and_the_others_stay() {
        for (value, wrong) in [
            (json!(null), "must be an object {match, path}, and is null"),
            (json!("/a"), "must be an object {match, path}, and is \"/a\""),
            (json!([]), "must be an object {match, path}, and is a list"),
            (json!({"match": "prefix"}), "its path must be a path such as \"/products/\", and is missing"),
            (json!({"match": "prefix", "path": ""}), "and is \"\""),
            (json!({"match": "prefix", "path": 7}), "and is 7"),
            (json!({"match": "prefix", "path": {"a": 1}}), "and is an object"),
            (json!({"path": "/a"}), "its match must be \"exact\", \"prefix\" or \"contains\", and is missing"),
            (json!({"match": "regex", "path": "/a"}), "and is \"regex\""),
            (json!({"match": "Prefix", "path": "/a"}), "and is \"Prefix\""),
            (json!({"match": ["prefix"], "path": "/a"}), "and is a list"),
            (json!({"match": "prefix", "path": "a"}), "starts with \"/\" where match is \"prefix\", and is \"a\""),
            (json!({"match": "exact", "path": "a"}), "starts with \"/\" where match is \"exact\", and is \"a\""),
            (json!({"match": "prefix", "path": "/a", "mode": "skip"}), "its mode must be \"prerender\" or"),
            (json!({"match": "prefix", "path": "/a", "mode": true}), "and is true"),
        ] {
            let (routes, invalid) = Routes::new(&[rule("exact", "/"), value.clone(), rule("prefix", "/b")], &[]);
            assert_eq!(routes.rules().len(), 2, "{value}");
            assert_eq!(routes.matched(b"https://example.com/b"), Some(1));
            assert_eq!(invalid.len(), 1, "{value}");
            assert_eq!(invalid[0].index, 1);
            let what = &invalid[0].what;
            assert!(what.starts_with("routes[1] is left out: ") && what.contains(wrong), "{what}");
        }
    }

    #[test]
    fn an_invalid_interval_is_left_out_and_reported_and_its_rule_stays() {
        for interval in [json!(0), json!(-1), json!("3600000"), json!(null), json!(true), json!([1])] {
            let value = json!({"match": "prefix", "path": "/", "renderInterval": interval});
            let (routes, invalid) = Routes::new(&[value], &[]);
            assert_eq!(routes.matched(b"https://example.com/"), Some(0));
            assert_eq!(routes.render_interval(0), None);
            assert_eq!(invalid.len(), 1);
            assert!(invalid[0].what.starts_with("routes[0] goes without its renderInterval: "), "{}", invalid[0].what);
        }
    }

    #[test]
    fn an_invalid_exclude_pattern_is_left_out_and_reported() {
        let (routes, invalid) = Routes::new(&[rule("prefix", "/")], &[json!(""), json!("/x"), json!(null), json!(1)]);
        assert_eq!(invalid.iter().map(|fault| fault.index).collect::<Vec<_>>(), [0, 2, 3]);
        assert!(invalid[0].what.starts_with("excludePathPatterns[0] is left out: "));
        assert_eq!(routes.matched(b"https://example.com/x"), None);
        assert_eq!(routes.matched(b"https://example.com/y"), Some(0));
    }

    #[test]
    fn a_report_does_not_repeat_a_megabyte() {
        let (_, invalid) = Routes::new(&[json!({"match": "ü".repeat(1 << 20), "path": "/a"})], &[]);
        assert!(invalid[0].what.len() < 400);
    }

    #[test]
    fn the_url_is_the_key_up_to_the_last_delimiter_before_a_device_type() {
        let types = ["desktop", "mobile", "", "m|x", "a-phone"].map(String::from);
        let url = |key: &'static str, delimiter: &str| {
            str::from_utf8(Devices::new(delimiter, &types).url_of(key.as_bytes())).unwrap()
        };
        assert_eq!(url("https://a.b/|mobile", "|"), "https://a.b/");
        assert_eq!(url("https://a.b/|desktop", "|"), "https://a.b/");
        assert_eq!(url("https://a.b/|mobile|desktop", "|"), "https://a.b/|mobile");
        assert_eq!(url("https://a.b/|tablet", "|"), "https://a.b/|tablet");
        assert_eq!(url("https://a.b/|mobile|tablet", "|"), "https://a.b/|mobile|tablet");
        assert_eq!(url("https://a.b/|Mobile", "|"), "https://a.b/|Mobile");
        assert_eq!(url("https://a.b/mobile", "|"), "https://a.b/mobile");
        assert_eq!(url("https://a.b/|", "|"), "https://a.b/");
        assert_eq!(url("https://a.b/|m|x", "|"), "https://a.b/|m|x");
        assert_eq!(url("|mobile", "|"), "");
        assert_eq!(url("mobile", "|"), "mobile");
        assert_eq!(url("", "|"), "");
        assert_eq!(url("https://a.b/:::mobile", "::"), "https://a.b/:");
        assert_eq!(url("https://a.b/|mobile", ""), "https://a.b/|mobile");
        assert_eq!(url("https://a.b/||a-phone", "||"), "https://a.b/");
        assert_eq!(url("https://a.b/|_a-phone", "||"), "https://a.b/|_a-phone");
        assert_eq!(Devices::new("|", &[]).url_of(b"https://a.b/|mobile"), b"https://a.b/|mobile");
    }

    #[test]
    fn the_url_is_what_a_search_from_the_end_of_the_key_finds() {
        let mut random = random(3);
        let types = ["a", "ab", "ba", "aab", "abbabbabba"].map(String::from);
        for _ in 0..50_000 {
            let mut text = |longest| (0..random(longest)).map(|_| ["a", "b"][random(2)]).collect::<String>();
            let (mut key, delimiter) = (text(10), text(4));
            key += [&types[random(5)], ""][random(2)];
            let expected = match key.rfind(&delimiter) {
                Some(at) if !delimiter.is_empty() && types.contains(&key[at + delimiter.len()..].to_owned()) => {
                    &key[..at]
                }
                _ => &key,
            };
            assert_eq!(Devices::new(&delimiter, &types).url_of(key.as_bytes()), expected.as_bytes());
        }
    }

    // The pathnames below are what Node 20 gives for `new URL(url).pathname`.
    #[test]
    fn the_pathname_is_the_one_that_javascript_gives() {
        for (url, expected) in [
            ("https://example.com", Some("/")),
            ("https://example.com?a", Some("/")),
            ("https://example.com/a/b?c#d", Some("/a/b")),
            ("HTTPS://EXAMPLE.com/A", Some("/A")),
            ("https://example.com/a/./b/../c", Some("/a/c")),
            ("https://example.com/..", Some("/")),
            ("https://example.com/%2e/a/%2E%2e/b", Some("/b")),
            ("https://example.com/a/.", Some("/a/")),
            ("https://example.com/a/..b/...", Some("/a/..b/...")),
            ("https://example.com\\a\\b", Some("/a/b")),
            ("https://exa\tmple.com/a\nb", Some("/ab")),
            ("  https://example.com/a  ", Some("/a")),
            ("https://example.com:443/a", Some("/a")),
            ("https://example.com:/a", Some("/a")),
            ("https://example.com:8080/a", Some("/a")),
            ("https://example.com:65536/a", None),
            ("https://example.com/ü", Some("/%C3%BC")),
            ("https://example.com/\u{1F600}", Some("/%F0%9F%98%80")),
            ("https://example.com/%zz%", Some("/%zz%")),
            ("https://example.com/a b\"<>`{}", Some("/a%20b%22%3C%3E%60%7B%7D")),
            ("https://example.com/|'[]~", Some("/|'[]~")),
            ("https://münchen.de/a", Some("/a")),
            ("https://xn--mnchen-3ya.de/a", Some("/a")),
            ("https://xn--a/b", None),
            ("https://1.2.3.4/a", Some("/a")),
            ("https://256.1.1.1/a", None),
            ("https://a.b.0x/a", None),
            ("https://[::1]:3000/a", Some("/a")),
            ("https://[::1/a", None),
            ("https://user:pw@example.com/a", Some("/a")),
            ("https:example.com/a", Some("/a")),
            ("https:///example.com/a", Some("/a")),
            ("https://a b.com/c", None),
            ("https://a%41.com/c", Some("/c")),
            ("https://a%20b.com/c", None),
            ("https://a..b/c", Some("/c")),
            ("https://a.b./c", Some("/c")),
            ("https://-a-.b/c", Some("/c")),
            (&format!("https://{}com/c", "a.".repeat(130)), Some("/c")),
            ("https://a_b.c/d", Some("/d")),
            ("https://example.com//a//b", Some("//a//b")),
            ("mailto:a@b.c", Some("a@b.c")),
            ("data:text/plain,a b", Some("text/plain,a b")),
            ("about:blank", Some("blank")),
            ("x://host/a/../b", Some("/b")),
            ("x:a/../b", Some("a/../b")),
            ("/a", None),
            ("example.com/a", None),
            ("", None),
            ("https://", None),
            ("ftp://a.b/c", Some("/c")),
            ("https://example.com/a?/../b#/../c", Some("/a")),
        ] {
            assert_eq!(pathname(url).as_deref(), expected, "{url:?}");
        }
    }

    #[test]
    fn a_lone_surrogate_in_a_url_is_a_replacement_character() {
        let path = |url: &[u8]| parsed_pathname(url).unwrap();
        assert_eq!(path(b"https://example.com/\xED\xA0\x80x"), "/%EF%BF%BDx");
        assert_eq!(path(b"https://example.com/\xED\xB0\x80\xED\xA0\x80"), "/%EF%BF%BD%EF%BF%BD");
        assert_eq!(plain_pathname(b"https://example.com/\xED\xA0\x80x"), None);
        // It is no hindrance where the pathname has ended.
        assert_eq!(plain_pathname(b"https://example.com/a?\xED\xA0\x80"), Some(&b"/a"[..]));
    }

    #[test]
    fn the_urls_of_a_sitemap_are_plain() {
        for url in [
            "https://example.com",
            "https://example.com?a",
            "http://www.example.co.uk/",
            "https://shop-2.example.com:8443/products/a_b-c.html?size=1|2#x",
            "https://example.com/de/m%C3%BCsli/~x/@y/(z)/a,b;c=d+e!f$g&h'i*j:k[l]",
            "http://localhost:9926/a//b/",
            "https://1and1.com/%C3%A4",
        ] {
            assert!(plain_pathname(url.as_bytes()).is_some(), "{url}");
        }
    }

    #[test]
    fn a_plain_pathname_is_the_one_that_parsing_gives() {
        #[rustfmt::skip]
        const HOSTS: &[&str] = &[
            "example.com", "www.example-shop.co.uk", "localhost", "a.b", "1a.2b", "a.1", "a.0x1", "a.b1", "a.1b", "0x7f.a",
            "1.2.3.4", "a..b", "a.", ".a", "a-", "a.b-", "a-.b", "-a.b", "a.-b", "a--b.c", "xn--mnchen-3ya.de", "xn--a.b",
            "A.b", "a_b.c", "a%62.c", "ü.de", "a b", "", "u@a.b", "u:p@a.b", "[::1]", "a.b:80", "a.b:443", "a.b:", "a.b:9999",
            "a.b:65536", "a.b:8x", "a.b:-1", "a.b:1:2", "a\tb.c", "a.b\\", "a\u{AD}.b", "a.b\u{FF0F}",
        ];
        #[rustfmt::skip]
        const PARTS: &[&str] = &[
            "/", "/", "/", "/", "a", "b", "products", "0123456789abcdef", "/a-long-segment-of-a-path", ".", "..", "...",
            "/.", "/..", "/./", "/../", "/%2e", "/%2E.", "/.%2e/", "/%2E%2e/", "%2e", "/%2", "/%", "%", "%zz", "/%2f", "%C3%BC",
            "?", "#", "?a=b", "#a", "/../?", "\\", "\\..\\", "\t", "\n", "\r", " ", "\0", "\x1F", "\x7F", "\"", "'", "<", ">",
            "`", "{", "}", "|", "^", "[", "]", "~", "!", "$", "&", "(", ")", "*", "+", ",", ";", "=", ":", "@", "_", "-", "ü",
            "\u{1F600}", "\u{80}", "\u{A0}", "\u{FEFF}",
        ];
        const SCHEMES: &[&str] =
            &["https://", "http://", "https://", "HTTPS://", "https:/", "https:", "ftp://", "x://", " https://"];
        let mut random = random(7);
        let mut plain = 0;
        for case in 0..400_000 {
            let mut url = SCHEMES[if random(8) == 0 { random(SCHEMES.len()) } else { 0 }].to_owned();
            url.push_str(HOSTS[if random(2) == 0 { random(HOSTS.len()) } else { 0 }]);
            // Half of the URLs are long and tame, so that the sixteen bytes at a time are met with one odd part among them.
            let tame = case % 2 == 0;
            let parts = random(if tame { 16 } else { 8 });
            let odd = random(16);
            for part in 0..parts {
                url.push_str(PARTS[random(if tame && part != odd { 9 } else { PARTS.len() })]);
            }
            if let Some(path) = plain_pathname(url.as_bytes()) {
                plain += 1;
                assert_eq!(parsed_pathname(url.as_bytes()).as_deref().map(str::as_bytes), Some(path), "{url:?}");
            }
        }
        assert!(plain > 50_000, "{plain}");
    }

    #[test]
    fn every_byte_is_judged_alike_wherever_it_stands() {
        for byte in 0..=127_u8 {
            for (at, before) in (0..40).flat_map(|at| [(at, b'/'), (at, b'a')]) {
                let mut path = vec![b'a'; 40];
                path[at] = byte;
                let text = [&b"https://example.com/"[..], &[before], &path].concat();
                if let Some(path) = plain_pathname(&text) {
                    assert_eq!(parsed_pathname(&text).as_deref().map(str::as_bytes), Some(path));
                } else {
                    assert!(!byte.is_ascii_alphanumeric() && !b"/-_~".contains(&byte), "{byte}");
                }
            }
        }
    }

    #[test]
    fn a_matcher_says_what_comparing_plainly_says() {
        let mut random = random(11);
        for _ in 0..200_000 {
            let mut text = |longest, letters: &[u8]| -> String {
                (0..random(longest)).map(|_| char::from(letters[random(letters.len())])).collect()
            };
            let path = format!("/{}", text(12, b"ab"));
            let part = format!("{}a", text(6, b"ab/"));
            let pathname = format!("/{}", text(60, b"ab/")).replacen("//", &path, 1);
            let says =
                |how, path: &str| Matcher::new(how, path, None).matches(pathname.as_bytes(), head(pathname.as_bytes()));
            assert_eq!(says(Match::Exact, &path), pathname == path, "{path} {pathname}");
            assert_eq!(says(Match::Prefix, &path), pathname.starts_with(&path), "{path} {pathname}");
            assert_eq!(says(Match::Contains, &part), pathname.contains(&part), "{part} {pathname}");
        }
    }

    #[test]
    fn a_short_path_is_told_from_a_longer_one() {
        for length in 0..20 {
            let path = format!("/{}", "a".repeat(length));
            let longer = format!("{path}a");
            let says = |how, path: &str, pathname: &str| {
                Matcher::new(how, path, None).matches(pathname.as_bytes(), head(pathname.as_bytes()))
            };
            assert!(says(Match::Exact, &path, &path) && says(Match::Prefix, &path, &path));
            assert!(!says(Match::Exact, &path, &longer) && !says(Match::Exact, &longer, &path));
            assert!(says(Match::Prefix, &path, &longer) && !says(Match::Prefix, &longer, &path));
            assert!(says(Match::Contains, &path, &longer) && !says(Match::Contains, &longer, &path));
        }
    }

    #[test]
    fn the_pathname_of_an_opaque_url_is_compared_too() {
        let routes = routes(&[rule("prefix", "/"), rule("contains", "@")], &[]);
        assert_eq!(routes.matched(b"mailto:a@b.c"), Some(1));
        assert_eq!(routes.matched(b"data:x"), None);
    }
}
