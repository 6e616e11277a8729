//! Frames on a byte stream that may carry noise: checksummed, and found again after damage.

/// Where a frame begins. The first byte is not valid UTF-8, so console text never holds it.
pub const MAGIC: [u8; 4] = *b"\xF5TAR";
pub const VERSION: u8 = 1;
/// Bytes before the payload: magic, version, kind, sequence number, length, checksum.
pub const HEADER: usize = 18;
/// Bytes after the payload: its checksum.
pub const TRAILER: usize = 4;
pub const MAX_PAYLOAD: usize = 1 << 20;
/// The sequence number of frames outside the order (the fatal error of a failing agent).
pub const OUT_OF_BAND: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    Message = 0,
    Series = 1,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub kind: Kind,
    pub seq: u32,
    pub payload: Vec<u8>,
}

/// The bytes of one frame.
///
/// # Panics
/// If the payload is longer than [`MAX_PAYLOAD`]: callers cut long data into chunks.
pub fn encode(kind: Kind, seq: u32, payload: &[u8]) -> Vec<u8> {
    assert!(payload.len() <= MAX_PAYLOAD, "payload too long for a frame");
    let mut bytes = Vec::with_capacity(HEADER + payload.len() + TRAILER);
    bytes.extend_from_slice(&MAGIC);
    bytes.push(VERSION);
    bytes.push(kind as u8);
    bytes.extend_from_slice(&seq.to_le_bytes());
    bytes.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    let check = crc32fast::hash(&bytes);
    bytes.extend_from_slice(&check.to_le_bytes());
    bytes.extend_from_slice(payload);
    bytes.extend_from_slice(&crc32fast::hash(payload).to_le_bytes());
    bytes
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Finds frames in the received bytes, in pieces of any size.
#[derive(Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    start: usize,
    /// Bytes that belonged to no frame.
    pub noise: u64,
    /// Places that looked like a frame and had a wrong checksum.
    pub damaged: u64,
}

enum Header {
    Incomplete,
    Bad,
    Good { kind: Kind, seq: u32, length: usize },
}

impl Decoder {
    pub fn new() -> Self {
        Self::default()
    }

    /// Add what was read.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// Whether a frame has begun and not ended; its rest may never come.
    pub fn is_partial(&self) -> bool {
        self.start < self.buffer.len()
    }

    /// Give up on the frame that has begun (its rest was lost) and search behind its first byte.
    pub fn abandon(&mut self) {
        if self.is_partial() {
            self.damaged += 1;
            self.skip(1);
        }
    }

    /// The next whole frame, or `None` until more bytes come.
    pub fn next_frame(&mut self) -> Option<Frame> {
        loop {
            self.seek_magic();
            let rest = &self.buffer[self.start..];
            match parse_header(rest) {
                Header::Incomplete => return None,
                Header::Bad => {
                    self.damaged += 1;
                    self.skip(1);
                }
                Header::Good { kind, seq, length } => {
                    let whole = HEADER + length + TRAILER;
                    if rest.len() < whole {
                        return None;
                    }
                    let payload = &rest[HEADER..HEADER + length];
                    if crc32fast::hash(payload) == u32_at(rest, HEADER + length) {
                        let payload = payload.to_vec();
                        self.start += whole;
                        return Some(Frame { kind, seq, payload });
                    }
                    self.damaged += 1;
                    self.skip(1);
                }
            }
        }
    }

    fn skip(&mut self, count: usize) {
        self.noise += count as u64;
        self.start += count;
    }

    /// Drop everything before the next magic, or before what may be its beginning at the end.
    fn seek_magic(&mut self) {
        let rest = &self.buffer[self.start..];
        let at = (0..rest.len())
            .find(|&at| {
                let seen = &rest[at..rest.len().min(at + MAGIC.len())];
                MAGIC.starts_with(seen)
            })
            .unwrap_or(rest.len());
        self.skip(at);
    }
}

fn parse_header(bytes: &[u8]) -> Header {
    if bytes.len() < HEADER {
        return Header::Incomplete;
    }
    let length = u32_at(bytes, 10) as usize;
    let kind = match bytes[5] {
        0 => Kind::Message,
        1 => Kind::Series,
        _ => return Header::Bad,
    };
    let whole = crc32fast::hash(&bytes[..HEADER - 4]) == u32_at(bytes, HEADER - 4);
    if bytes[4] != VERSION || length > MAX_PAYLOAD || !whole {
        return Header::Bad;
    }
    Header::Good {
        kind,
        seq: u32_at(bytes, 6),
        length,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frames() -> impl Strategy<Value = Vec<Frame>> {
        let frame = (
            any::<bool>(),
            any::<u32>(),
            prop::collection::vec(any::<u8>(), 0..600),
        )
            .prop_map(|(series, seq, payload)| Frame {
                kind: if series { Kind::Series } else { Kind::Message },
                seq,
                payload,
            });
        prop::collection::vec(frame, 0..8)
    }

    fn decode_in_pieces(bytes: &[u8], cuts: &[usize]) -> (Vec<Frame>, Decoder) {
        let mut decoder = Decoder::new();
        let mut found = Vec::new();
        let mut rest = bytes;
        for cut in cuts.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (piece, after) = rest.split_at((*cut).min(rest.len()));
            decoder.push(piece);
            while let Some(frame) = decoder.next_frame() {
                found.push(frame);
            }
            rest = after;
        }
        (found, decoder)
    }

    proptest! {
        #[test]
        fn any_split_gives_the_same_frames(sent in frames(), cuts in prop::collection::vec(1usize..97, 1..9)) {
            let bytes: Vec<u8> = sent.iter().flat_map(|f| encode(f.kind, f.seq, &f.payload)).collect();
            let (found, decoder) = decode_in_pieces(&bytes, &cuts);
            prop_assert_eq!(found, sent);
            prop_assert_eq!(decoder.noise, 0);
        }

        #[test]
        fn text_between_frames_is_counted_and_dropped(sent in frames(), text in "[ -~\n]{0,200}") {
            let mut bytes = text.clone().into_bytes();
            for f in &sent {
                bytes.extend(encode(f.kind, f.seq, &f.payload));
                bytes.extend(text.as_bytes());
            }
            let (found, decoder) = decode_in_pieces(&bytes, &[61]);
            prop_assert_eq!(decoder.noise as usize, text.len() * (sent.len() + 1));
            prop_assert_eq!(found, sent);
        }

        #[test]
        fn damage_costs_only_the_frames_it_touches(
            sent in frames(), hits in prop::collection::vec((any::<prop::sample::Index>(), 1u8..), 1..4)
        ) {
            let mut bytes = Vec::new();
            let mut ends = Vec::new();
            for f in &sent {
                bytes.extend(encode(f.kind, f.seq, &f.payload));
                ends.push(bytes.len());
            }
            prop_assume!(!bytes.is_empty());
            let mut touched = std::collections::BTreeSet::new();
            let mut damaged = bytes.clone();
            for (at, change) in hits {
                let at = at.index(bytes.len());
                damaged[at] ^= change;
                if damaged[at] == bytes[at] { continue; }
                touched.insert(ends.iter().position(|end| at < *end).unwrap());
            }
            // Two hits on one byte may undo each other; the untouched frames are what counts.
            // A closing frame shows that nothing is swallowed for good.
            let last = Frame { kind: Kind::Message, seq: 7, payload: vec![0; MAX_PAYLOAD.min(4096)] };
            damaged.extend(encode(last.kind, last.seq, &last.payload));
            let (found, _) = decode_in_pieces(&damaged, &[113]);
            let mut expected: Vec<Frame> = sent.iter().enumerate()
                .filter(|(index, _)| !touched.contains(index)).map(|(_, f)| f.clone()).collect();
            expected.push(last);
            let mut remaining = found.iter();
            for frame in &expected {
                prop_assert!(remaining.any(|f| f == frame), "a whole frame was lost");
            }
        }

        #[test]
        fn no_bytes_make_it_fail(bytes in prop::collection::vec(any::<u8>(), 0..4000), cuts in prop::collection::vec(1usize..300, 1..5)) {
            let _ = decode_in_pieces(&bytes, &cuts);
        }

        #[test]
        fn near_frames_do_not_make_it_fail(
            sent in frames(), cut in any::<prop::sample::Index>(), junk in prop::collection::vec(any::<u8>(), 0..64)
        ) {
            let bytes: Vec<u8> = sent.iter().flat_map(|f| encode(f.kind, f.seq, &f.payload)).collect();
            let at = cut.index(bytes.len() + 1);
            let mut decoder = Decoder::new();
            decoder.push(&bytes[..at]);
            decoder.push(&junk);
            while decoder.next_frame().is_some() {}
            while decoder.is_partial() {
                decoder.abandon();
                while decoder.next_frame().is_some() {}
            }
            let last = encode(Kind::Message, 1, b"{}");
            decoder.push(&last);
            prop_assert!(decoder.next_frame().is_some());
        }
    }

    #[test]
    fn the_layout_is_as_documented() {
        let bytes = encode(Kind::Series, 0x0403_0201, b"ab");
        assert_eq!(
            &bytes[..14],
            b"\xF5TAR\x01\x01\x01\x02\x03\x04\x02\x00\x00\x00"
        );
        assert_eq!(bytes.len(), HEADER + 2 + TRAILER);
        assert_eq!(
            u32_at(&bytes, 20),
            0x9E83486D,
            "CRC-32 (IEEE) of the payload"
        );
    }

    #[test]
    fn decoded_frames_are_not_kept() {
        let mut decoder = Decoder::new();
        let bytes = encode(Kind::Message, 0, b"{}");
        for _ in 0..3 {
            decoder.push(&bytes);
            assert!(decoder.next_frame().is_some());
            assert!(!decoder.is_partial());
            assert_eq!(decoder.buffer.len(), bytes.len());
        }
    }

    #[test]
    fn a_frame_that_never_ends_can_be_abandoned() {
        let mut decoder = Decoder::new();
        let lost = encode(Kind::Message, 1, &[b'x'; 1000]);
        decoder.push(&lost[..500]);
        decoder.push(&encode(Kind::Message, 2, b"{}"));
        assert_eq!((decoder.next_frame(), decoder.damaged), (None, 0));
        decoder.abandon();
        assert_eq!(decoder.next_frame().unwrap().seq, 2);
        assert_eq!(decoder.damaged, 1);
    }
}
