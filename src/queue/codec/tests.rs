use super::*;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    fn below(&mut self, n: usize) -> usize {
        self.next() as usize % n
    }

    fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.next() as u8).collect()
    }
}

const WORDS: [&str; 16] = [
    "mens",
    "womens",
    "waterproof",
    "hiking",
    "boots",
    "trail",
    "running",
    "jacket",
    "leather",
    "cotton",
    "summer",
    "lightweight",
    "insulated",
    "shoes",
    "backpack",
    "organic",
];

fn shop_key(random: &mut Random) -> Vec<u8> {
    let mut key = format!("https://www.shop-{}.com/product/", random.below(9));
    for _ in 0..3 + random.below(3) {
        key += WORDS[random.below(WORDS.len())];
        key += "-";
    }
    let digits = 5 + random.below(6);
    key.extend((0..digits).map(|_| (b'0' + random.below(10) as u8) as char));
    key += ["", "?color=brown", "?color=red&size=10"][random.below(3)];
    key += ["", "|desktop", "|mobile"][random.below(3)];
    key.into_bytes()
}

fn train(keys: impl IntoIterator<Item = Vec<u8>>) -> Codec {
    let mut trainer = Trainer::new();
    keys.into_iter().for_each(|key| trainer.sample(&key));
    std::iter::repeat_with(|| trainer.step()).take(20_000).flatten().next().expect("training ends")
}

fn shop() -> Codec {
    let mut random = Random(1);
    train((0..2000).map(|_| shop_key(&mut random)))
}

/// Codecs of samples good, small, and useless.
fn codecs() -> Vec<Codec> {
    let mut random = Random(2);
    vec![
        shop(),
        train([]),
        train([vec![]]),
        train([b"a single key".to_vec()]),
        train((0..3000).map(|_| b"https://www.shop.com/the-same-key".to_vec())),
        train((0..3000).map(|_| random.bytes(120))),
        train((0..200).map(|_| vec![0xFF; 2000])),
    ]
}

fn code(codec: &Codec, key: &[u8]) -> Vec<u8> {
    let mut code = vec![];
    codec.encode(key, &mut code);
    code
}

fn decoded(codec: &Codec, code: &[u8]) -> Vec<u8> {
    let mut key = vec![];
    codec.decode(code, &mut key);
    key
}

/// `matches` must say what decoding would.
fn assert_agrees(codec: &Codec, code: &[u8], key: &[u8]) {
    assert_eq!(codec.matches(code, key), decoded(codec, code) == key, "{:?}", String::from_utf8_lossy(key));
}

fn assert_round_trip(codec: &Codec, key: &[u8]) {
    let code = code(codec, key);
    assert!(code.len() <= 2 * key.len());
    assert!(decoded(codec, &code) == key, "{:?}", String::from_utf8_lossy(&key[..key.len().min(200)]));
    assert!(codec.matches(&code, key));
}

#[test]
fn keys_of_the_sampled_kind_become_a_quarter() {
    let codec = shop();
    let mut random = Random(3);
    let (mut plain, mut packed) = (0, 0);
    for _ in 0..2000 {
        let key = shop_key(&mut random);
        assert_round_trip(&codec, &key);
        plain += key.len();
        packed += code(&codec, &key).len();
    }
    assert!(packed * 4 < plain, "{packed} of {plain} bytes");
}

#[test]
fn a_key_that_starts_as_the_one_before_has_the_code_that_it_has_alone() {
    let mut random = Random(8);
    let long = (2..=64).flat_map(|n| [vec![b'a'; n], [vec![b'a'; n - 1], vec![b'b']].concat()]).collect::<Vec<_>>();
    let noise = (0..3584).map(|_| random.bytes(12)).collect();
    let read = [long, noise].map(|symbols| Codec::read(&file(symbols)).expect("within the bounds"));
    for codec in codecs().into_iter().chain(read) {
        let mut trail = Trail::default();
        let mut key = shop_key(&mut random);
        for _ in 0..4_000 {
            assert_eq!(codec.encode_after(&mut trail, &key), code(&codec, &key), "{key:?}");
            let at = random.below(key.len() + 1);
            match random.below(6) {
                0 => key = shop_key(&mut random),
                1 => key.truncate(at),
                2 => key.insert(at, [b'a', b'b', b'0', 0xFF][random.below(4)]),
                3 => key.truncate(key.len().saturating_sub(random.below(9))),
                4 => key.extend_from_slice(&shop_key(&mut random)[..random.below(30)]),
                _ => key.extend(std::iter::repeat_n([b'a', b'7', b'-'][random.below(3)], random.below(70))),
            }
            key.truncate(400);
        }
        key.resize(MOST_TRAILED, 0xFF);
        assert_eq!(codec.encode_after(&mut trail, &key), code(&codec, &key));
    }
}

#[test]
fn every_key_round_trips_whatever_the_codec() {
    let mut random = Random(4);
    let mut keys =
        vec![vec![], vec![0], vec![0xFF], b"\0\0\0".to_vec(), "é – 漢字|desktop".into(), vec![0xED, 0xA0, 0x80]];
    keys.extend((0..=255u8).map(|b| vec![b]));
    keys.extend((0..=24).map(|n| b"9".repeat(n)));
    keys.extend((0..=24).map(|n| b"0".repeat(n)));
    keys.extend((0..100).map(|_| shop_key(&mut random)));
    for n in 0..200 {
        keys.push(random.bytes(n));
        // Pieces of known keys between noise: symbols cut short and misplaced.
        let piece = shop_key(&mut random);
        let from = random.below(piece.len());
        keys.push([&random.bytes(n % 5), &piece[from..], &random.bytes(n % 7), &piece[..from]].concat());
    }
    keys.push(random.bytes(1 << 20));
    keys.push((0..10_000).flat_map(|_| shop_key(&mut random)).collect());
    for codec in codecs() {
        keys.iter().for_each(|key| assert_round_trip(&codec, key));
    }
}

#[test]
fn near_misses_do_not_match() {
    let codec = shop();
    let mut random = Random(5);
    for _ in 0..300 {
        let key = shop_key(&mut random);
        let code = code(&codec, &key);
        for at in 0..key.len() {
            let mut other = key.clone();
            other[at] ^= 1 << random.below(8);
            assert!(!codec.matches(&code, &other));
            assert!(!codec.matches(&code, &key[..at]));
            assert!(!codec.matches(&code, &key[at + 1..]));
            assert!(!codec.matches(&code, &[&key[..at], b"x", &key[at..]].concat()));
        }
        assert!(!codec.matches(&code, &[&key[..], b"\0"].concat()));
        assert!(!codec.matches(&code, &[&key[..], &key[..]].concat()));
        for cut in 0..code.len() {
            assert!(!codec.matches(&code[..cut], &key));
        }
    }
}

#[test]
fn bytes_that_are_no_code_decode_to_something_bounded_and_match_it() {
    let mut random = Random(6);
    for codec in codecs() {
        for n in 0..2000 {
            let noise = random.bytes(n % 64);
            let key = decoded(&codec, &noise);
            assert!(key.len() <= 64 * noise.len());
            assert!(codec.matches(&noise, &key));
            assert_agrees(&codec, &noise, &random.bytes(n % 8));
            assert_agrees(&codec, &noise, &key[..key.len() / 2]);
            assert_agrees(&codec, &noise, &[&key[..], b"a"].concat());
        }
        for a in 0..=255 {
            for b in [0, 1, 127, 255] {
                let noise = [a, b, b, b, b, b];
                (0..=6).for_each(|n| assert!(codec.matches(&noise[..n], &decoded(&codec, &noise[..n]))));
            }
        }
    }
}

#[test]
fn encoding_and_decoding_append() {
    let codec = shop();
    let mut out = b"before".to_vec();
    codec.encode(b"https://www.shop-1.com/product/", &mut out);
    let packed = out.split_off(6);
    codec.decode(&packed, &mut out);
    assert_eq!(out, b"beforehttps://www.shop-1.com/product/");
}

#[test]
fn a_codec_takes_at_most_128_kib() {
    for codec in codecs() {
        assert!(codec.heap_bytes() <= 128 << 10, "{}", codec.heap_bytes());
    }
}

#[test]
fn a_codec_written_and_read_back_is_the_same() {
    let mut random = Random(9);
    for codec in codecs() {
        let mut written = vec![];
        codec.write(&mut written);
        let back = Codec::read(&written).expect("what was written");
        for _ in 0..500 {
            let key = shop_key(&mut random);
            let code = code(&codec, &key);
            assert_eq!(self::code(&back, &key), code);
            assert_agrees(&back, &code, &key);
        }
    }
}

#[test]
fn no_bytes_make_a_codec_that_panics() {
    let mut written = vec![];
    shop().write(&mut written);
    let mut random = Random(5);
    let mut read = 0;
    for _ in 0..3_000 {
        let mut bytes = written.clone();
        for _ in 0..1 + random.below(3) {
            let within = if random.below(2) == 0 { 400 } else { bytes.len() };
            let at = random.below(within);
            bytes[at] = random.next() as u8;
        }
        if random.below(4) == 0 {
            bytes.truncate(random.below(bytes.len()));
        }
        let Some(codec) = Codec::read(&bytes) else { continue };
        read += 1;
        let key = shop_key(&mut random);
        assert_round_trip(&codec, &key);
        let noise = random.bytes(200);
        assert_agrees(&codec, &noise, &decoded(&codec, &noise));
    }
    assert!(read > 100, "{read}: the others say nothing");
}

/// What `write` writes of a codec with these symbols, all with codes of two bytes.
fn file(symbols: impl IntoIterator<Item = Vec<u8>>) -> Vec<u8> {
    let symbols: std::collections::BTreeSet<_> = symbols.into_iter().collect();
    let mut file = vec![symbols.len().div_ceil(256) as u8];
    file.extend([0; 256]);
    file.extend((symbols.len() as u16).to_le_bytes());
    for (symbol, code) in symbols.iter().zip(u16::from(FIRST_LEAD) << 8..) {
        file.extend(code.to_le_bytes());
        file.push(symbol.len() as u8);
        file.extend(symbol);
    }
    file
}

#[test]
fn a_codec_read_from_any_file_takes_at_most_128_kib_and_round_trips() {
    let mut random = Random(7);
    let spread = |n: usize| (n * 37 % 256) as u8;
    let files: [Vec<Vec<u8>>; 5] = [
        (0..3584).map(|_| (0..12).map(|_| b'a' + random.below(2) as u8).collect()).collect(),
        (0..3584).map(|_| random.bytes(12)).collect(),
        (0..3584).map(|_| (0..12).map(|_| spread(random.below(64))).collect()).collect(),
        (0..3584).map(|n| [vec![spread(n / 64), spread(random.below(256))], random.bytes(10)].concat()).collect(),
        (2..=64).flat_map(|n| [vec![b'a'; n], [vec![b'a'; n - 1], vec![b'b']].concat()]).collect(),
    ];
    let mut without_room = 0;
    for symbols in files {
        let codec = Codec::read(&file(symbols.clone())).expect("within the bounds");
        assert!(codec.heap_bytes() <= 128 << 10, "{}", codec.heap_bytes());
        for _ in 0..200 {
            let key: Vec<u8> = (0..4).flat_map(|_| symbols[random.below(symbols.len())].clone()).collect();
            assert_round_trip(&codec, &key);
        }
        without_room += symbols.iter().filter(|symbol| codec.table.longest(symbol, 0).1 < symbol.len()).count();
    }
    assert!(without_room > 100, "{without_room}: all symbols find room, and nothing is said of those that do not");
}

#[test]
fn a_file_with_more_than_any_codec_learns_is_refused() {
    let numbered = |n: u16| [&n.to_be_bytes()[..], b"-symbol"].concat();
    assert!(Codec::read(&file((0..3584).map(numbered))).is_some());
    assert!(Codec::read(&file((0..3585).map(numbered))).is_none());
    assert!(Codec::read(&file((0..60_000).map(numbered))).is_none());
    let long = |n: u16| [&n.to_be_bytes()[..], &[b'-'; 62]].concat();
    assert!(Codec::read(&file((0..704).map(long))).is_some());
    assert!(Codec::read(&file((0..705).map(long))).is_none());
}
