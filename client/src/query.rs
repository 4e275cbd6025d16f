//! Queries of coordinators. A refusal is a value.

use domain::{
    subject::Subject,
    wire::{
        AnswerMessage, ContextStatus, Query, QueryAnswer, Question, Refusal, RunSummary, RunsCursor,
        RunsQuery, Text,
    },
};

use crate::{Client, Error};

/// The largest number of entries in one page of an answer.
pub const PAGE: u32 = 500;

/// The answer of a coordinator, or its refusal.
pub type Reply<T> = Result<Result<T, Refusal>, Error>;

/// A page of a list of runs.
#[derive(Debug, Clone)]
pub struct RunList {
    pub runs: Vec<RunSummary>,
    /// Continues the list, as `after` of the next query; none at its end.
    pub next: Option<RunsCursor>,
    /// The number of runs without a filter, if the filter matches none.
    pub unfiltered: Option<u64>,
}

impl Client {
    /// Sends a query. A query without an answer is sent a second time, except a change of one
    /// revision of a schedule: its second delivery would find another revision.
    pub async fn query(&self, query: &Query) -> Reply<QueryAnswer> {
        if matches!(query, Query::PutSchedule { revision: Some(_), .. }) {
            return self.query_once(query).await;
        }
        let payload = serde_json::to_vec(query).map_err(Error::Message)?;
        let answer: QueryAnswer = self.request_again(&Subject::of_query(query), payload, "the query").await?;
        Ok(answer.or_refusal())
    }

    /// Like `query`, with one delivery only.
    pub async fn query_once(&self, query: &Query) -> Reply<QueryAnswer> {
        let payload = serde_json::to_vec(query).map_err(Error::Message)?.into();
        let answer: QueryAnswer = self.request(&Subject::of_query(query), payload, "the query").await?;
        Ok(answer.or_refusal())
    }

    /// A page of the runs, the newest first (G17).
    pub async fn runs(&self, query: &RunsQuery) -> Reply<RunList> {
        match self.query(&Query::Runs(Box::new(query.clone()))).await? {
            Ok(QueryAnswer::Runs { runs, next, unfiltered }) => Ok(Ok(RunList { runs, next, unfiltered })),
            Ok(other) => Err(Error::other_answer(other)),
            Err(refusal) => Ok(Err(refusal)),
        }
    }

    /// One page of the runs that have not ended and do not wait for a human, the newest first.
    pub async fn working_runs(&self) -> Reply<Vec<RunSummary>> {
        let status = vec![ContextStatus::Submitted, ContextStatus::Working];
        let query = RunsQuery { limit: PAGE, status, waiting_for_human: Some(false), ..RunsQuery::default() };
        Ok(self.runs(&query).await?.map(|list| list.runs))
    }

    /// All pages of a list. `query` makes the query for the page after a name; `page` reads the
    /// entries and the next name from its answer.
    pub async fn all_pages<T, N>(
        &self,
        query: impl Fn(Option<N>, u32) -> Query,
        page: impl Fn(QueryAnswer) -> Result<(Vec<T>, Option<N>), Error>,
    ) -> Reply<Vec<T>> {
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let answer = match self.query(&query(after, PAGE)).await? {
                Ok(answer) => answer,
                Err(refusal) => return Ok(Err(refusal)),
            };
            let (listed, next) = page(answer)?;
            all.extend(listed);
            match next {
                Some(next) => after = Some(next),
                None => return Ok(Ok(all)),
            }
        }
    }

    /// Answers a question. The answer is committed when this call returns.
    pub async fn answer(&self, question: &Question, answer: Text, by: Option<Text>) -> Reply<()> {
        let (trace_id, child_id) = (question.trace_id, question.child_id.clone());
        let answered = AnswerMessage { child_id, question: question.number, answer, by };
        match self.query(&Query::Answer { trace_id, answered }).await? {
            Ok(QueryAnswer::Answered { .. }) => Ok(Ok(())),
            Ok(other) => Err(Error::other_answer(other)),
            Err(refusal) => Ok(Err(refusal)),
        }
    }
}
