//! A valid file, broken in every way that a seeded loop finds: it is refused or read whole, and never a panic.

use apprentice_gguf::{Gguf, Writer};
use common::{Random, Raw, sample, written};

mod common;

#[test]
fn every_truncation() {
    let bytes = sample();
    // The last tensor is two bytes long and padded to 32.
    let whole = bytes.len() - 30;
    for length in 0..bytes.len() {
        let file = Gguf::from_bytes(bytes[..length].to_vec());
        assert_eq!(file.is_ok(), length >= whole, "{length} of {} bytes", bytes.len());
    }
}

#[test]
fn every_byte_changed() {
    let bytes = sample();
    let mut refused = 0;
    for position in 0..bytes.len() {
        let before = bytes[position];
        let flipped = (0..8).map(|bit| before ^ 1 << bit);
        for value in flipped.chain([0, 9, 0xff, before.wrapping_add(1), before.wrapping_sub(1)]) {
            let mut changed = bytes.clone();
            changed[position] = value;
            refused += usize::from(check(changed).is_none());
        }
    }
    assert!(refused > bytes.len(), "only {refused} changes were refused");
}

#[test]
fn every_place_with_every_extreme_number() {
    let bytes = sample();
    let extremes = [
        0,
        1,
        0xffff,
        1 << 31,
        u64::from(u32::MAX),
        1 << 32,
        1 << 40,
        1 << 61,
        1 << 63,
        u64::MAX,
        u64::MAX - 31,
    ];
    for position in 0..bytes.len() - 8 {
        for value in extremes {
            let mut changed = bytes.clone();
            changed[position..position + 8].copy_from_slice(&value.to_le_bytes());
            check(changed);
        }
    }
}

#[test]
fn pieces_cut_out_doubled_and_moved() {
    let seed = 20_260_701;
    let mut random = Random(seed);
    let bytes = sample();
    for round in 0..5_000 {
        let mut changed = bytes.clone();
        for _ in 0..1 + random.below(4) {
            let start = random.below(changed.len());
            let end = start + random.below((changed.len() - start).min(40) + 1);
            let piece: Vec<u8> = changed[start..end].to_vec();
            match random.below(3) {
                0 => drop(changed.drain(start..end)),
                1 => drop(changed.splice(start..start, piece)),
                _ => {
                    let to = random.below(changed.len() - piece.len() + 1);
                    changed[to..to + piece.len()].copy_from_slice(&piece);
                }
            }
            if changed.is_empty() {
                break;
            }
        }
        if std::panic::catch_unwind(|| check(changed)).is_err() {
            panic!("seed {seed}, round {round}");
        }
    }
}

#[test]
fn noise_after_a_plausible_header() {
    let seed = 20_260_702;
    let mut random = Random(seed);
    for round in 0..5_000 {
        let mut file = Raw::new(random.below(4) as u64, random.below(4) as u64);
        for _ in 0..random.below(200) {
            // Mostly small numbers, so that lengths and types are often in range.
            let byte =
                if random.below(4) == 0 { random.below(256) } else { random.below(10) * random.below(2) };
            file.0.push(byte as u8);
        }
        if std::panic::catch_unwind(|| check(file.0)).is_err() {
            panic!("seed {seed}, round {round}");
        }
    }
}

/// Reads `bytes`. Where they are accepted, everything in them can be used, and what is written again is the same.
fn check(bytes: Vec<u8>) -> Option<Gguf> {
    let size = bytes.len();
    let file = Gguf::from_bytes(bytes).ok()?;
    let total: usize = file.tensors().iter().map(|tensor| file.bytes(tensor).len()).sum();
    assert!(total <= size, "tensors of {total} bytes in a file of {size}");
    assert_eq!(file.fingerprint().len(), 64);
    for tensor in file.tensors() {
        let mut values = vec![0.0; tensor.count()];
        tensor.format.decode(file.bytes(tensor), &mut values).expect("as many bytes as the shape takes");
    }
    if file.alignment() <= 4096 {
        let mut writer = Writer::new();
        for (key, value) in file.metadata() {
            writer.set(key, value.clone()).expect("a key that was read");
        }
        for tensor in file.tensors() {
            let bytes = file.bytes(tensor);
            writer.tensor(&tensor.name, &tensor.shape, tensor.format, bytes).expect("a tensor that was read");
        }
        let again = Gguf::from_bytes(written(&writer)).expect("what was written");
        // Compared as text, because a NaN differs from itself.
        assert_eq!(format!("{:?}", content(&again)), format!("{:?}", content(&file)));
    }
    Some(file)
}

fn content(file: &Gguf) -> impl std::fmt::Debug {
    let tensors: Vec<_> = file
        .tensors()
        .iter()
        .map(|tensor| (&tensor.name, &tensor.shape, tensor.format, file.bytes(tensor)))
        .collect();
    (file.metadata().collect::<Vec<_>>(), tensors)
}
