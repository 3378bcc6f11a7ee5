//! The cache against pages that remember what was written to them: whoever holds a page reads there what it would have
//! written itself, whatever was shared, copied and given up in between.

use std::collections::HashMap;

use super::*;

/// A number of a linear congruence: the high bits.
struct Random(u64);

impl Random {
    fn below(&mut self, count: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % count
    }
}

/// What the keys of the last of `rows` depend on.
fn value(rows: &[Row]) -> u64 {
    rows.iter().fold(1, |hash: u64, row| {
        (hash ^ (u64::from(row.token) << 20 | u64::from(row.content))).wrapping_mul(0x100_0000_01b3)
    })
}

struct Pool {
    cache: Cache,
    cells: HashMap<(usize, i32, usize), u64>,
}

struct Job {
    rows: Vec<Row>,
    holding: Holding,
    computed: usize,
    anchor: usize,
}

impl Pool {
    fn begin(&mut self, rows: Vec<Row>, anchor: usize, jobs: &[Job]) -> Option<Job> {
        let findable = rows.len() - 1;
        let wish = Wish { rows: &rows, findable, positions: rows.len(), anchor, cut: 70 };
        let reserved: Vec<usize> = (0..self.cache.groups())
            .map(|group| jobs.iter().map(|job| job.holding.outstanding(group)).sum())
            .collect();
        let Admitted { holding, found, copy } = self.cache.admit(&wish, &reserved)?;
        assert!(found <= findable);
        if let Some(copy) = copy {
            for (group, (from, to)) in copy.pages.into_iter().enumerate() {
                assert_ne!(from, to);
                for row in 0..copy.rows {
                    self.cells.insert((group, to, row), self.cells[&(group, from, row)]);
                }
            }
        }
        let job = Job { rows, holding, computed: found, anchor };
        self.check(&job);
        Some(job)
    }

    fn compute(&mut self, job: &mut Job, rows: usize) {
        self.check(job);
        let end = (job.computed + rows).min(job.rows.len());
        self.cache.grow(&mut job.holding, end).expect("the job was let in for these pages");
        for position in job.computed..end {
            for (group, table) in job.holding.tables.iter().enumerate() {
                let cell = (group, table[position / PAGE_POSITIONS], position % PAGE_POSITIONS);
                self.cells.insert(cell, value(&job.rows[..=position]));
            }
        }
        job.computed = end;
        self.cache.commit(&mut job.holding, &job.rows, end);
        self.check(job);
    }

    /// Every position that the next row sees is held and is what the job's own rows would have made it.
    fn check(&self, job: &Job) {
        for (group, window) in self.cache.windows.iter().enumerate() {
            let first = window.map_or(0, |w| (job.computed.min(job.anchor) + 1).saturating_sub(w));
            for position in first..job.computed {
                let page = job.holding.tables[group][position / PAGE_POSITIONS];
                assert!(page >= 0, "position {position} of group {group} is not held");
                let found = self.cells[&(group, page, position % PAGE_POSITIONS)];
                assert_eq!(found, value(&job.rows[..=position]), "position {position} of group {group}");
            }
        }
    }
}

fn random_rows(random: &mut Random) -> Vec<Row> {
    let (seed, shared, own) = (random.below(3) as u32, random.below(180), 1 + random.below(90));
    let content = (random.below(3) * random.below(2)) as u32;
    let from = random.below(200);
    let row = |index: usize, token: u32| Row { token, content: if index >= from { content } else { 0 } };
    let mut rows: Vec<Row> = (0..shared).map(|index| row(index, seed + index as u32)).collect();
    rows.extend((0..own).map(|index| row(shared + index, 1000 + random.below(2) as u32)));
    rows
}

#[test]
fn pages_hold_what_their_holders_would_have_written() {
    for seed in 0..200 {
        let mut random = Random(seed);
        let windows = [vec![None], vec![Some(20), None], vec![Some(100), None, Some(1)]];
        let windows = windows[random.below(3)].clone();
        let total = 5 + random.below(20);
        let mut pool = Pool { cache: Cache::new(windows, total), cells: HashMap::new() };
        let mut jobs: Vec<Job> = Vec::new();
        let mut let_in = 0;
        for _ in 0..300 {
            match random.below(4) {
                0 => {
                    let rows = random_rows(&mut random);
                    let anchor = if random.below(4) == 0 { random.below(rows.len()) } else { usize::MAX };
                    if let Some(job) = pool.begin(rows, anchor, &jobs) {
                        jobs.push(job);
                        let_in += 1;
                    } else {
                        assert!(!jobs.is_empty(), "seed {seed}: five pages are enough for one");
                    }
                }
                1 if !jobs.is_empty() => {
                    let job = jobs.swap_remove(random.below(jobs.len()));
                    pool.cache.release(job.holding, &job.rows, job.computed);
                }
                _ if !jobs.is_empty() => {
                    let at = random.below(jobs.len());
                    pool.compute(&mut jobs[at], 1 + random.below(70));
                }
                _ => {}
            }
        }
        assert!(let_in > 10, "seed {seed}");
        for job in jobs.drain(..) {
            pool.cache.release(job.holding, &job.rows, job.computed);
        }
        for group in 0..pool.cache.groups() {
            assert_eq!(pool.cache.available(group), total, "seed {seed}: a page of group {group} is lost");
        }
        pool.cache.forget();
        for group in 0..pool.cache.groups() {
            let mut pages: Vec<i32> = (0..total).map_while(|_| pool.cache.take(group)).collect();
            pages.sort_unstable();
            assert_eq!(pages, (0..total as i32).collect::<Vec<_>>(), "seed {seed}: group {group}");
        }
    }
}

#[test]
fn what_was_used_least_recently_goes_first() {
    let mut pool = Pool { cache: Cache::new(vec![None], 6), cells: HashMap::new() };
    let rows = |seed: u32| (0..128).map(|index| Row { token: seed + index, content: 0 }).collect::<Vec<_>>();
    for seed in [1000, 2000, 3000, 1000, 4000] {
        let mut job = pool.begin(rows(seed), usize::MAX, &[]).unwrap();
        pool.compute(&mut job, 128);
        pool.cache.release(job.holding, &job.rows, job.computed);
    }
    let found = |seed: u32| {
        let rows = rows(seed);
        let wish = Wish { rows: &rows, findable: 128, positions: 128, anchor: usize::MAX, cut: 128 };
        pool.cache.find(&wish).path.len()
    };
    assert_eq!([1000, 2000, 3000, 4000].map(found), [2, 0, 2, 2]);
}
