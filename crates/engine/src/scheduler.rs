//! The scheduler: jobs that wait, jobs whose rows are in batches, and the lesson that learns between them.
//!
//! A step is one batch or one slice of learning. A batch takes a row of every reply in progress, then rows of prompts in
//! the order of submission, up to its capacity. A job is let in only if every page that it may come to need can be had, so
//! that no job that runs ever waits for another.

use std::collections::VecDeque;
use std::time::Duration;

use apprentice_models::Want;

use crate::assemble::Piece;
use crate::bank::AdapterId;
use crate::batch::{Answer, serving_arrays};
use crate::engine::{Engine, Named};
use crate::error::EngineError;
use crate::job::{Event, Job, JobId, Lesson, LiveId};
use crate::lesson::Learning;
use crate::options::{HEAD_ROWS, PAGE_POSITIONS, ROWS_CHUNK};
use crate::prefix::{Holding, PageCopy, Row, Wish};
use crate::share::Share;
use crate::stream::{Choice, Stream, row_of};

/// Jobs that run at a time: each may want an output of a batch.
const RUNNING_MAX: usize = HEAD_ROWS;

/// All jobs.
#[derive(Default)]
pub(crate) struct Jobs {
    next: u64,
    pub(crate) waiting: VecDeque<(JobId, Work)>,
    /// In the order in which they were let in.
    pub(crate) running: Vec<Running>,
    pub(crate) learning: Option<Learning>,
    share: Share,
}

/// A job with the tokens that it begins with.
pub(crate) struct Work {
    pub(crate) kind: Kind,
    pub(crate) tokens: Vec<u32>,
    pub(crate) rows: Vec<Row>,
    pub(crate) named: Named,
}

/// What a job is.
pub(crate) enum Kind {
    Stream(Stream),
    /// A lesson; its tokens are the context to be read.
    Lesson(Box<Lesson>),
}

/// A job whose rows are in batches.
pub(crate) struct Running {
    pub(crate) id: JobId,
    pub(crate) work: Work,
    pub(crate) holding: Holding,
    /// Rows whose keys and values are in pages.
    pub(crate) computed: usize,
}

/// So many of the next rows of a running job.
struct Pick {
    index: usize,
    rows: usize,
}

impl Work {
    /// What it needs of the cache.
    pub(crate) fn wish(&self) -> Wish<'_> {
        let (findable, positions, anchor) = match &self.kind {
            Kind::Stream(stream) => (self.tokens.len() - 1, stream.positions(), usize::MAX),
            Kind::Lesson(lesson) => (self.tokens.len(), self.tokens.len(), lesson.first_row()),
        };
        Wish { rows: &self.rows, findable, positions, anchor, cut: ROWS_CHUNK }
    }

    fn stream(&self) -> Option<&Stream> {
        match &self.kind {
            Kind::Stream(stream) => Some(stream),
            Kind::Lesson(_) => None,
        }
    }
}

impl Running {
    fn pending(&self) -> usize {
        self.work.tokens.len() - self.computed
    }
    fn in_prompt(&self) -> bool {
        self.work.stream().is_none_or(|stream| self.computed < stream.prompt)
    }
}

impl Jobs {
    /// Pages of a group that running jobs may still take.
    pub(crate) fn reserved(&self, group: usize) -> usize {
        self.running.iter().map(|job| job.holding.outstanding(group)).sum()
    }

    /// Whether the rows of a reply, begun or not, name an adapter.
    pub(crate) fn is_named(&self, adapter: AdapterId) -> bool {
        let all = self.waiting.iter().map(|(_, work)| work).chain(self.running.iter().map(|job| &job.work));
        all.into_iter().any(|work| matches!(work.named, Named::From(_, named) if named == adapter))
    }

    /// Whether a lesson of this adapter waits or runs.
    pub(crate) fn is_learning(&self, live: LiveId) -> bool {
        let all = self.waiting.iter().map(|(_, work)| work).chain(self.running.iter().map(|job| &job.work));
        let waits =
            all.into_iter().any(|work| matches!(&work.kind, Kind::Lesson(lesson) if lesson.adapter == live));
        waits || self.learning.as_ref().is_some_and(|learning| learning.lesson.adapter == live)
    }

    /// Whether a lesson reads its context or learns.
    fn has_lesson(&self) -> bool {
        self.learning.is_some() || self.running.iter().any(|job| job.work.stream().is_none())
    }
}

impl Engine {
    /// Takes a job. Everything about it is checked here.
    ///
    /// # Errors
    /// What is wrong with it, by name; nothing has changed then.
    pub fn submit(&mut self, job: Job) -> Result<JobId, EngineError> {
        let work = match job {
            Job::Generate(generate) => self.reply_work(generate)?,
            Job::Learn(lesson) => self.lesson_work(lesson)?,
        };
        let wish = work.wish();
        for group in 0..self.cache.groups() {
            let (found, limit) = (self.cache.need(group, &wish), self.cache.total(group));
            if found > limit {
                return Err(EngineError::Limit { what: "pages", found, limit });
            }
        }
        self.jobs.next += 1;
        let id = JobId(self.jobs.next);
        self.jobs.waiting.push_back((id, work));
        Ok(id)
    }

    /// Ends a job without a further event; `false` if it has ended already. What a lesson has learnt so far is dropped.
    pub fn cancel(&mut self, id: JobId) -> bool {
        if let Some(at) = self.jobs.waiting.iter().position(|(waiting, _)| *waiting == id) {
            self.jobs.waiting.remove(at);
        } else if let Some(at) = self.jobs.running.iter().position(|job| job.id == id) {
            let job = self.jobs.running.remove(at);
            self.cache.release(job.holding, &job.work.rows, job.computed);
        } else if self.jobs.learning.as_ref().is_some_and(|learning| learning.id == id) {
            self.abandon_lesson();
        } else {
            return false;
        }
        self.unload_retired();
        true
    }

    /// Whether there is nothing to do.
    pub fn idle(&self) -> bool {
        self.jobs.waiting.is_empty() && self.jobs.running.is_empty() && self.jobs.learning.is_none()
    }

    /// Runs one batch or one slice of learning. `now` is the time of any clock that does not go backwards: learning gets a
    /// tenth of it while somebody is served, and all of it otherwise.
    pub fn step(&mut self, now: Duration) -> Vec<Event> {
        let mut events = Vec::new();
        self.jobs.share.account(now);
        let learns = self.jobs.learning.is_some();
        let due = learns && self.jobs.share.is_due();
        if due || !self.serve(&mut events) && learns {
            let limit = self.jobs.share.slice(!self.jobs.running.is_empty());
            let full = self.learn_slice(limit, &mut events);
            self.jobs.share.learnt(limit, full);
        }
        self.unload_retired();
        events
    }

    /// Runs one batch; `false` if nobody is to be served.
    fn serve(&mut self, events: &mut Vec<Event>) -> bool {
        let picks = self.pick(events);
        if picks.is_empty() {
            return !events.is_empty();
        }
        match self.run_picks(&picks) {
            Ok(answer) => self.take_answer(&picks, answer, events),
            Err(error) => {
                let error = error.shared();
                for pick in picks.iter().rev() {
                    let job = self.jobs.running.remove(pick.index);
                    self.cache.release(job.holding, &job.work.rows, job.computed);
                    events.push(Event::Failed { job: job.id, error: error() });
                }
            }
        }
        true
    }

    /// The rows of the next batch: replies in progress, prompts that have begun, then jobs that wait.
    fn pick(&mut self, events: &mut Vec<Event>) -> Vec<Pick> {
        let mut room = ROWS_CHUNK;
        let mut picks: Vec<Pick> = Vec::new();
        for in_prompt in [false, true] {
            for (index, job) in self.jobs.running.iter().enumerate() {
                let rows = job.pending().min(room);
                if job.in_prompt() == in_prompt && rows > 0 {
                    picks.push(Pick { index, rows });
                    room -= rows;
                }
            }
        }
        while room > 0 && self.jobs.running.len() < RUNNING_MAX {
            let Some(at) = self.next_waiting() else { break };
            if self.is_being_read(at, &picks) {
                break;
            }
            if !self.let_in(at, events) {
                break;
            }
            let index = self.jobs.running.len() - 1;
            let rows = self.jobs.running[index].pending().min(room);
            if rows > 0 {
                picks.push(Pick { index, rows });
                room -= rows;
            } else {
                self.begin_lesson(index, events);
            }
        }
        picks.sort_by_key(|pick| pick.index);
        picks
    }

    /// The next job to be let in: the first, but lessons one at a time.
    fn next_waiting(&self) -> Option<usize> {
        let has_lesson = self.jobs.has_lesson();
        self.jobs.waiting.iter().position(|(_, work)| work.stream().is_some() || !has_lesson)
    }

    /// Whether the batch reads a page now that the job waiting at `at` begins with: a step later it is found.
    fn is_being_read(&self, at: usize, picks: &[Pick]) -> bool {
        let (_, work) = &self.jobs.waiting[at];
        let wish = work.wish();
        let rows = &wish.rows[..wish.findable];
        picks.iter().map(|pick| &self.jobs.running[pick.index]).filter(|job| job.in_prompt()).any(|job| {
            let common = job.work.rows.iter().zip(rows).take_while(|(a, b)| a == b).count();
            common / PAGE_POSITIONS > job.computed / PAGE_POSITIONS
        })
    }

    /// Lets in the job waiting at `at`, or fails it where nothing that runs will ever free the pages that it needs.
    fn let_in(&mut self, at: usize, events: &mut Vec<Event>) -> bool {
        let reserved: Vec<usize> = (0..self.cache.groups()).map(|group| self.jobs.reserved(group)).collect();
        let (id, work) = &self.jobs.waiting[at];
        let (id, admitted) = (*id, self.cache.admit(&work.wish(), &reserved));
        let copied = match admitted {
            Some(admitted) => match self.copy_page(admitted.copy.as_ref()) {
                Ok(()) => Ok(admitted),
                Err(error) => {
                    self.cache.release(admitted.holding, &[], 0);
                    Err(error)
                }
            },
            None if self.jobs.running.is_empty() && self.jobs.learning.is_none() => {
                let wish = work.wish();
                let short = (0..self.cache.groups())
                    .map(|group| (self.cache.need(group, &wish), self.cache.available(group)))
                    .max_by_key(|(need, available)| need.saturating_sub(*available));
                let (found, limit) = short.unwrap_or_default();
                Err(EngineError::Limit { what: "pages", found, limit })
            }
            None => return false,
        };
        let Some((_, work)) = self.jobs.waiting.remove(at) else { return false };
        match copied {
            Ok(admitted) => {
                self.counts.cached += admitted.found as u64;
                events.push(Event::Started { job: id, cached: admitted.found });
                let computed = admitted.found;
                self.jobs.running.push(Running { id, work, holding: admitted.holding, computed });
                true
            }
            Err(error) => {
                events.push(Event::Failed { job: id, error });
                false
            }
        }
    }

    /// Copies the first rows of a page, in every layer of every group.
    fn copy_page(&mut self, copy: Option<&PageCopy>) -> Result<(), EngineError> {
        let Some(copy) = copy else { return Ok(()) };
        for (group, (from, to)) in copy.pages.iter().enumerate() {
            for store in &self.group_pools[group] {
                let cell = |page: &i32| *page as usize * PAGE_POSITIONS;
                self.backend.copy(*store, cell(from), cell(to), copy.rows)?;
            }
        }
        Ok(())
    }

    fn run_picks(&mut self, picks: &[Pick]) -> Result<Answer, EngineError> {
        let mut want = Want::Greedy;
        for pick in picks {
            let job = &mut self.jobs.running[pick.index];
            let grown = self.cache.grow(&mut job.holding, job.computed + pick.rows);
            grown.map_err(|group| {
                let limit = self.cache.total(group);
                EngineError::Limit { what: "pages", found: limit + 1, limit }
            })?;
            if pick.rows == job.pending() && job.work.stream().is_some_and(Stream::wants_logits) {
                want = Want::Logits;
            }
        }
        let mut pieces = Vec::with_capacity(picks.len());
        for pick in picks {
            let job = &self.jobs.running[pick.index];
            let ends = pick.rows == job.pending() && job.work.stream().is_some();
            pieces.push(Piece {
                tokens: &job.work.tokens[job.computed..job.computed + pick.rows],
                first_position: job.computed,
                tables: &job.holding.tables,
                named: self.named_rows(job.work.named, job.computed, pick.rows)?,
                head: if ends { vec![pick.rows - 1] } else { Vec::new() },
            });
        }
        let arrays = serving_arrays(&pieces, self.cache.groups());
        self.execute(&arrays, want)
    }

    /// Counts the rows of a batch as computed, and goes on with every job as its output says.
    fn take_answer(&mut self, picks: &[Pick], answer: Answer, events: &mut Vec<Event>) {
        let vocab = self.model.hyper().vocab;
        let mut output = 0;
        let mut ended = Vec::new();
        let mut read = None;
        for pick in picks {
            let job = &mut self.jobs.running[pick.index];
            let (in_prompt, is_last) = (job.in_prompt(), pick.rows == job.pending());
            job.computed += pick.rows;
            self.cache.commit(&mut job.holding, &job.work.rows, job.computed);
            match in_prompt {
                true => self.counts.prompted += pick.rows as u64,
                false => self.counts.decoded += pick.rows as u64,
            }
            if !is_last {
                continue;
            }
            let Kind::Stream(stream) = &mut job.work.kind else {
                read = Some(job.id);
                continue;
            };
            let choice = match &answer {
                Answer::Tokens(tokens) => Choice::Token(tokens[output]),
                Answer::Logits(logits) => Choice::Logits(&logits[output * vocab..(output + 1) * vocab]),
            };
            output += 1;
            let (said, next) = stream.next(job.id, choice, &job.work.tokens);
            events.extend(said);
            match next {
                Some(token) => {
                    let row = row_of(&self.bank, token, job.work.tokens.len(), job.work.named);
                    job.work.tokens.push(token);
                    job.work.rows.push(row);
                }
                None => ended.push(pick.index),
            }
        }
        for index in ended.into_iter().rev() {
            let job = self.jobs.running.remove(index);
            self.cache.release(job.holding, &job.work.rows, job.computed);
        }
        if let Some(at) = read.and_then(|id| self.jobs.running.iter().position(|job| job.id == id)) {
            self.begin_lesson(at, events);
        }
    }

    /// The lesson running at `index` has read its context: it learns from now on.
    fn begin_lesson(&mut self, index: usize, events: &mut Vec<Event>) {
        let job = self.jobs.running.remove(index);
        self.jobs.share.begin();
        self.start_lesson(job, events);
    }
}
