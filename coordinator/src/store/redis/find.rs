//! Finds runs in Redis (G17). Each partition lists its runs by the time at which they began: all
//! runs in one list, and again in one list for each term. A query reads the shortest lists that
//! must contain a run, newest first, in growing pieces; a run matches if the other lists contain it
//! too. Pieces are read from all partitions in one round trip, and merged.

use std::collections::HashMap;

use domain::{Timestamp, TraceId, subject::Partition};
use redis::{Cmd, Value};

use super::{
    super::{Error, Find},
    Redis, Request,
    reply::{self, decode},
    traces::traces_of,
};

const DOING: &str = "find runs in Redis";
/// The fewest entries of a list that are read at once, and the most.
const FIRST_PIECE: usize = 32;
const MAX_PIECE: usize = 4096;

/// The beginning of a run and its id: the order of the lists.
type Place = (Timestamp, TraceId);

/// A list that is read newest first.
struct List {
    home: Partition,
    key: String,
    /// Older entries are not read.
    oldest: Timestamp,
    /// The list is read up to this place, exclusive; none: not read yet, without a bound.
    read_to: Option<Place>,
    piece: usize,
    at_end: bool,
}

/// For each group, the lists of a partition of which one must contain the run.
type Groups = Vec<Vec<String>>;

impl Redis {
    pub(in super::super) async fn find(&self, find: &Find) -> Result<Vec<(TraceId, Timestamp)>, Error> {
        if find.limit == 0 {
            return Ok(Vec::new());
        }
        let (mut lists, groups) = self.lists(find).await?;
        let mut found: Vec<Place> = Vec::new();
        loop {
            let last = found.get(find.limit - 1).copied();
            // A list that is already read beyond the last run of the page can't change the page.
            let open = |list: &&mut List| {
                !list.at_end && last.is_none_or(|last| list.read_to.is_none_or(|read_to| read_to > last))
            };
            let mut open: Vec<&mut List> = lists.iter_mut().filter(open).collect();
            if open.is_empty() {
                break;
            }
            let read = self.read(&mut open, find.latest()).await?;
            let after = |(_, place): &(Partition, Place)| find.after.is_none_or(|after| *place < after);
            let read: Vec<(Partition, Place)> = read.into_iter().filter(after).collect();
            found.extend(self.listed_everywhere(read, &groups, find.cost).await?);
            found.sort_unstable_by(|a, b| b.cmp(a));
        }
        found.truncate(find.limit);
        Ok(found.into_iter().map(|(at, trace)| (trace, at)).collect())
    }

    /// The lists to read, and for each partition the other lists that must contain a run.
    async fn lists(&self, find: &Find) -> Result<(Vec<List>, HashMap<Partition, Groups>), Error> {
        let piece = find.limit.clamp(FIRST_PIECE, MAX_PIECE);
        let list = |home, key, oldest| List { home, key, oldest, read_to: None, piece, at_end: false };
        if find.terms.is_empty() {
            let all = self.keys.homes().map(|home| list(home, self.keys.runs(home), find.since));
            return Ok((all.collect(), HashMap::new()));
        }
        let terms: Vec<&String> = find.terms.iter().flatten().collect();
        let request = |home: Partition| {
            let mut commands = vec![Cmd::zrange_withscores(self.keys.runs(home), 0, 0)];
            commands.extend(terms.iter().map(|term| Cmd::zcard(self.keys.term(home, term))));
            Request { home, commands }
        };
        let answers = self.fetch(DOING, self.keys.homes().map(request).collect()).await?;
        let (mut lists, mut groups) = (Vec::new(), HashMap::new());
        for (home, answers) in self.keys.homes().zip(answers) {
            let mut answers = answers.into_iter();
            // A run that is older than all listed runs is not found any more, even if a term still
            // lists it.
            let oldest = reply::scored(DOING, answers.next().unwrap_or(Value::Nil))?;
            let oldest = oldest.first().map(|(_, oldest)| *oldest).filter(|_| !find.any_age);
            let Some(oldest) = oldest.or(find.any_age.then_some(find.since)) else { continue };
            let mut sizes: Vec<u64> = Vec::with_capacity(terms.len());
            for answer in answers {
                sizes.push(decode(DOING, answer)?);
            }
            let mut sizes = sizes.into_iter();
            let size = |group: &Vec<String>| -> u64 { sizes.by_ref().take(group.len()).sum() };
            let sizes: Vec<u64> = find.terms.iter().map(size).collect();
            let shortest = (0..sizes.len()).min_by_key(|group| sizes[*group]).unwrap_or_default();
            let key = |term: &String| self.keys.term(home, term);
            let read = find.terms[shortest].iter().map(|term| list(home, key(term), find.since.max(oldest)));
            lists.extend(read);
            let others = find.terms.iter().enumerate().filter(|(group, _)| *group != shortest);
            let mut all: Groups = others.map(|(_, group)| group.iter().map(key).collect()).collect();
            if !find.any_age {
                all.push(vec![self.keys.runs(home)]);
            }
            groups.insert(home, all);
        }
        Ok((lists, groups))
    }

    /// Reads the next piece of each list.
    async fn read(
        &self,
        lists: &mut [&mut List],
        latest: Option<Timestamp>,
    ) -> Result<Vec<(Partition, Place)>, Error> {
        let request = |list: &List| {
            let from = list.read_to.map(|(at, _)| at).or(latest);
            let from = from.map_or_else(|| "+inf".to_owned(), |at| at.millis().to_string());
            let mut command = redis::cmd("ZREVRANGEBYSCORE");
            command.arg(&list.key).arg(from).arg(list.oldest.millis()).arg("WITHSCORES");
            command.arg("LIMIT").arg(0).arg(list.piece);
            Request { home: list.home, commands: vec![command] }
        };
        let requests = lists.iter().map(|list| request(list)).collect();
        let answers = self.fetch(DOING, requests).await?;
        let mut read = Vec::new();
        for (list, answer) in lists.iter_mut().zip(answers.into_iter().flatten()) {
            let entries = reply::scored(DOING, answer)?;
            list.at_end = entries.len() < list.piece;
            // Entries with the millisecond of the last entry are returned again.
            let places = entries.into_iter().map(|(trace, at)| (at, trace));
            let new: Vec<Place> =
                places.filter(|place| list.read_to.is_none_or(|read_to| *place < read_to)).collect();
            list.read_to = new.last().copied().or(list.read_to);
            list.piece = if new.is_empty() { list.piece * 4 } else { (list.piece * 4).min(MAX_PIECE) };
            read.extend(new.into_iter().map(|place| (list.home, place)));
        }
        Ok(read)
    }

    /// Returns the runs that each group lists, and whose cost fits or is unknown.
    async fn listed_everywhere(
        &self,
        read: Vec<(Partition, Place)>,
        groups: &HashMap<Partition, Groups>,
        cost: Option<(u64, u64)>,
    ) -> Result<Vec<Place>, Error> {
        if groups.values().all(Vec::is_empty) && cost.is_none() {
            return Ok(read.into_iter().map(|(_, place)| place).collect());
        }
        let mut by_home: HashMap<Partition, Vec<Place>> = HashMap::new();
        for (home, place) in read {
            by_home.entry(home).or_default().push(place);
        }
        let by_home: Vec<(Partition, Vec<Place>)> = by_home.into_iter().collect();
        let request = |(home, places): &(Partition, Vec<Place>)| {
            let members: Vec<String> = places.iter().map(|(_, trace)| trace.to_string()).collect();
            let scores = |key: &String| Cmd::zscore_multiple(key, &members);
            let mut commands: Vec<Cmd> =
                groups.get(home).into_iter().flatten().flatten().map(scores).collect();
            commands.extend(cost.map(|_| scores(&self.keys.costs(*home))));
            Request { home: *home, commands }
        };
        let answers = self.fetch(DOING, by_home.iter().map(request).collect()).await?;
        let mut found = Vec::new();
        for ((home, places), answers) in by_home.into_iter().zip(answers) {
            let mut scores = Vec::with_capacity(answers.len());
            for answer in answers {
                scores.push(decode::<Vec<Option<f64>>>(DOING, answer)?);
            }
            let has = |list: usize, member: usize| scores[list].get(member).copied().flatten();
            let fits = |member: usize| {
                let mut list = 0;
                for group in groups.get(&home).into_iter().flatten() {
                    if !(list..list + group.len()).any(|list| has(list, member).is_some()) {
                        return false;
                    }
                    list += group.len();
                }
                // Amounts are below 2^53: a double holds them.
                let fits = |(least, most): (u64, u64)| {
                    has(list, member).is_none_or(|cost| (least as f64..=most as f64).contains(&cost))
                };
                cost.is_none_or(fits)
            };
            found.extend(
                places.iter().enumerate().filter(|(member, _)| fits(*member)).map(|(_, place)| *place),
            );
        }
        Ok(found)
    }

    pub(in super::super) async fn with_prefix(
        &self,
        prefix: &str,
        limit: usize,
    ) -> Result<Vec<TraceId>, Error> {
        let request = |home: Partition| {
            let mut command = redis::cmd("ZRANGEBYLEX");
            // `g` sorts after every hex digit.
            command.arg(self.keys.ids(home)).arg(format!("[{prefix}")).arg(format!("({prefix}g"));
            command.arg("LIMIT").arg(0).arg(limit);
            Request { home, commands: vec![command] }
        };
        let answers = self.fetch(DOING, self.keys.homes().map(request).collect()).await?;
        let mut ids = traces_of(DOING, answers)?;
        ids.sort_unstable();
        ids.truncate(limit);
        Ok(ids)
    }

    pub(in super::super) async fn run_count(&self) -> Result<u64, Error> {
        let request = |home: Partition| Request { home, commands: vec![Cmd::zcard(self.keys.runs(home))] };
        let answers = self.fetch(DOING, self.keys.homes().map(request).collect()).await?;
        answers.into_iter().flatten().map(|answer| decode::<u64>(DOING, answer)).sum()
    }
}
