//! How far two arrays are apart: NMSE, relative (Frobenius) difference, cosine; and adapters, tensor by tensor.

use apprentice_models::Pair;

/// Sums over two arrays of the same length, from which every measure follows.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Sums {
    difference: f64,
    reference: f64,
    own: f64,
    product: f64,
}

impl Sums {
    /// The sums over two arrays. Lengths that differ make every measure not a number.
    pub fn of(own: &[f32], reference: &[f32]) -> Sums {
        if own.len() != reference.len() {
            return Sums { difference: f64::NAN, reference: f64::NAN, own: f64::NAN, product: f64::NAN };
        }
        own.iter().zip(reference).fold(Sums::default(), |sums, (own, reference)| {
            let (own, reference) = (f64::from(*own), f64::from(*reference));
            Sums {
                difference: sums.difference + (own - reference) * (own - reference),
                reference: sums.reference + reference * reference,
                own: sums.own + own * own,
                product: sums.product + own * reference,
            }
        })
    }

    /// These and others together.
    pub fn with(self, other: Sums) -> Sums {
        Sums {
            difference: self.difference + other.difference,
            reference: self.reference + other.reference,
            own: self.own + other.own,
            product: self.product + other.product,
        }
    }

    /// `sum((own - reference)^2) / sum(reference^2)`; not a number, or infinite, where the reference is zero.
    pub fn nmse(&self) -> f64 {
        self.difference / self.reference
    }
    /// The root of [`Sums::nmse`]: the difference relative to the reference, Frobenius.
    pub fn relative(&self) -> f64 {
        self.nmse().sqrt()
    }
    /// The cosine of the angle between the two; not a number where one is zero.
    pub fn cosine(&self) -> f64 {
        self.product / (self.own.sqrt() * self.reference.sqrt())
    }
    /// Whether one of the two has no element other than zero.
    pub fn is_zero(&self) -> bool {
        self.reference == 0.0 || self.own == 0.0
    }
}

/// How far the matrices of two adapters are apart.
#[derive(Clone, PartialEq, Debug)]
pub struct PairsComparison {
    /// NMSE over all elements of the reference.
    pub nmse: f64,
    /// The largest relative difference of a tensor, and whose it is.
    pub relative: (f64, String),
    /// The smallest cosine of a tensor, and whose it is.
    pub cosine: (f64, String),
    /// Tensors of the reference.
    pub tensors: usize,
    /// Those of them that are not among ours, or are zero on one side.
    pub absent: Vec<String>,
}

/// Compares `own` with every tensor of `reference`. `name` says what a tensor is called: of a site, its A or its B.
/// Tensors called as one of `zero` are zero by construction and left out.
pub fn compare_pairs(
    own: &[Pair],
    reference: &[Pair],
    zero: &[String],
    name: impl Fn(usize, Half) -> String,
) -> PairsComparison {
    let mut total = Sums::default();
    let (mut relative, mut cosine) = ((0.0, String::new()), (f64::INFINITY, String::new()));
    let (mut tensors, mut absent) = (0, Vec::new());
    for pair in reference {
        let ours = own.iter().find(|ours| ours.site == pair.site);
        let halves =
            [(Half::A, ours.map(|ours| &ours.a), &pair.a), (Half::B, ours.map(|ours| &ours.b), &pair.b)];
        for (half, ours, theirs) in halves {
            let name = name(pair.site, half);
            if zero.contains(&name) {
                continue;
            }
            tensors += 1;
            let sums = Sums::of(ours.map_or(&[], Vec::as_slice), theirs);
            total = total.with(sums);
            if ours.is_none() || sums.is_zero() {
                absent.push(name.clone());
            }
            if worse(sums.relative(), relative.0) {
                relative = (sums.relative(), name.clone());
            }
            if worse(-sums.cosine(), -cosine.0) {
                cosine = (sums.cosine(), name);
            }
        }
    }
    PairsComparison { nmse: total.nmse(), relative, cosine, tensors, absent }
}

/// Whether `found` is above `worst`. What is not a number is above everything, and stays it.
pub(crate) fn worse(found: f64, worst: f64) -> bool {
    !worst.is_nan() && (found.is_nan() || found > worst)
}

/// A matrix of a pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Half {
    /// A.
    A,
    /// B.
    B,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(site: usize, a: &[f32], b: &[f32]) -> Pair {
        Pair { site, rank: 1, scale: 1.0, a: a.to_vec(), b: b.to_vec() }
    }

    fn compare(own: &[Pair], reference: &[Pair]) -> PairsComparison {
        compare_pairs(own, reference, &["1B".to_owned()], |site, half| format!("{site}{half:?}"))
    }

    #[test]
    fn measures_of_two_arrays() {
        let sums = Sums::of(&[3.0, 4.5], &[3.0, 4.0]);
        assert_eq!((sums.nmse(), sums.relative()), (0.25 / 25.0, 0.1));
        assert!((Sums::of(&[1.0, 0.0], &[1.0, 1.0]).cosine() - 0.5f64.sqrt()).abs() < 1e-15);
        assert!(Sums::of(&[1.0], &[1.0, 2.0]).nmse().is_nan(), "lengths differ");
    }

    #[test]
    fn equal_adapters_are_not_apart() {
        let pairs = [pair(0, &[1.0, 2.0], &[3.0]), pair(4, &[1.0], &[-1.0])];
        let found = compare(&pairs, &pairs);
        assert_eq!((found.nmse, found.relative.0, found.tensors), (0.0, 0.0, 4));
        assert!((found.cosine.0 - 1.0).abs() < 1e-15 && found.absent.is_empty());
    }

    #[test]
    fn what_is_missing_or_zero_is_named() {
        let check = |own: &[Pair], reference: &[Pair], absent: &[&str]| {
            let found = compare(own, reference);
            assert_eq!(found.absent, absent);
            assert!(worse(found.relative.0, 1e-4) && worse(-found.cosine.0, -0.9999), "{found:?}");
        };
        check(&[], &[pair(0, &[1.0], &[1.0])], &["0A", "0B"]);
        check(&[pair(0, &[0.0], &[1.0])], &[pair(0, &[1.0], &[1.0])], &["0A"]);
        check(&[pair(0, &[1.0], &[0.5])], &[pair(0, &[1.0], &[0.0])], &["0B"]);
        let not_a_number = compare(&[pair(0, &[f32::NAN], &[1.0])], &[pair(0, &[1.0], &[1.0])]);
        assert!(not_a_number.relative.0.is_nan() && not_a_number.relative.1 == "0A");
    }

    #[test]
    fn what_is_zero_by_construction_is_left_out() {
        let found = compare(&[pair(1, &[1.0], &[0.0])], &[pair(1, &[1.0], &[0.0])]);
        assert_eq!((found.tensors, found.absent.len()), (1, 0));
    }
}
