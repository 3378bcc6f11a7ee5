//! AdamW, f32, nothing fused: `p = p - decay * p`, `m = b1 * m + c1 * g`, `v = b2 * v + (c2 * g) * g`,
//! `p = p - (step * m) / (sqrt(v) / root + eps)`.
//!
//! Source: Loshchilov and Hutter 2019, "Decoupled Weight Decay Regularization", algorithm 2.

use crate::disjoint::Disjoint;
use crate::isa::{Isa, LANES};
use crate::kernels::map::take;
use crate::kernels::{Kernel, UNIT_ELEMENTS};

/// `p`, `g`, `m`, `v` of one shape -> `p`, `m`, `v` after the step.
pub struct AdamW<'a> {
    /// `[lr * weight decay, b1, 1 - b1, b2, 1 - b2, lr / (1 - b1^t), sqrt(1 - b2^t), eps]`.
    pub scalars: &'a [f32],
    /// The gradient.
    pub g: &'a [f32],
    /// The parameters, or `None` where they lie in `p_out`.
    pub p: Option<&'a [f32]>,
    /// The first moment, or `None` where it lies in `m_out`.
    pub m: Option<&'a [f32]>,
    /// The second moment, or `None` where it lies in `v_out`.
    pub v: Option<&'a [f32]>,
    /// The parameters after the step.
    pub p_out: Disjoint<'a, f32>,
    /// The first moment after the step.
    pub m_out: Disjoint<'a, f32>,
    /// The second moment after the step.
    pub v_out: Disjoint<'a, f32>,
}

/// Elements of a unit: four arrays in the cache.
const UNIT: usize = UNIT_ELEMENTS / 4;

impl Kernel for AdamW<'_> {
    fn units(&self) -> usize {
        self.g.len().div_ceil(UNIT)
    }

    #[inline(always)]
    fn unit<I: Isa>(&self, isa: I, unit: usize, _: &mut [f32]) {
        let range = unit * UNIT..((unit + 1) * UNIT).min(self.g.len());
        // SAFETY: units are ranges that follow each other.
        let p = unsafe { take(&self.p_out, self.p, range.clone()) };
        // SAFETY: as above.
        let m = unsafe { take(&self.m_out, self.m, range.clone()) };
        // SAFETY: as above.
        let v = unsafe { take(&self.v_out, self.v, range.clone()) };
        let g = &self.g[range];
        for (((p, m), v), g) in
            p.chunks_mut(LANES).zip(m.chunks_mut(LANES)).zip(v.chunks_mut(LANES)).zip(g.chunks(LANES))
        {
            let state = [isa.load_partial(p), isa.load_partial(m), isa.load_partial(v)];
            let [next_p, next_m, next_v] = self.step(isa, state, isa.load_partial(g));
            isa.store_partial(p, next_p);
            isa.store_partial(m, next_m);
            isa.store_partial(v, next_v);
        }
    }
}

impl AdamW<'_> {
    #[inline(always)]
    fn step<I: Isa>(&self, isa: I, [p, m, v]: [I::V; 3], g: I::V) -> [I::V; 3] {
        let mut scalars = [isa.zero(); 8];
        for (scalar, value) in scalars.iter_mut().zip(self.scalars) {
            *scalar = isa.splat(*value);
        }
        let [decay, b1, c1, b2, c2, step, root, eps] = scalars;
        let p = isa.sub(p, isa.mul(decay, p));
        let m = isa.add(isa.mul(b1, m), isa.mul(c1, g));
        let v = isa.add(isa.mul(b2, v), isa.mul(isa.mul(c2, g), g));
        let divisor = isa.add(isa.div(isa.sqrt(v), root), eps);
        [isa.sub(p, isa.div(isa.mul(step, m), divisor)), m, v]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::suite::{Numbers, Wanted, check};

    #[test]
    fn an_element_at_a_time() {
        let scalars = [2e-5f32, 0.9, 0.1, 0.999, 0.001, 2e-2, 0.0316, 1e-8];
        let [decay, b1, c1, b2, c2, step, root, eps] = scalars;
        for (seed, count) in [1, 17, 2048, 5001].into_iter().enumerate() {
            let mut numbers = Numbers::new(seed as u64);
            let (p, g, m) = (numbers.normal(count), numbers.hard(count), numbers.normal(count));
            let v: Vec<f32> = numbers.normal(count).into_iter().map(|v| v * v).collect();
            let (mut p_next, mut m_next, mut v_next) = (p.clone(), m.clone(), v.clone());
            for at in 0..count {
                p_next[at] -= decay * p_next[at];
                m_next[at] = b1 * m[at] + c1 * g[at];
                v_next[at] = b2 * v[at] + (c2 * g[at]) * g[at];
                p_next[at] -= step * m_next[at] / (v_next[at].sqrt() / root + eps);
            }
            check(
                seed as u64,
                &[Wanted::new(&p_next), Wanted::new(&m_next), Wanted::new(&v_next)],
                |outs, run| {
                    run.all(&AdamW {
                        scalars: &scalars,
                        g: &g,
                        p: Some(&p),
                        m: Some(&m),
                        v: Some(&v),
                        p_out: outs[0],
                        m_out: outs[1],
                        v_out: outs[2],
                    });
                },
            );
            let in_place =
                [Wanted::in_place(&p_next, &p), Wanted::in_place(&m_next, &m), Wanted::in_place(&v_next, &v)];
            check(seed as u64, &in_place, |outs, run| {
                let (p_out, m_out, v_out) = (outs[0], outs[1], outs[2]);
                run.all(&AdamW { scalars: &scalars, g: &g, p: None, m: None, v: None, p_out, m_out, v_out });
            });
        }
    }
}
