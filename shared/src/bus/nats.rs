//! The bus on NATS: not written yet; its connect refuses.
#![allow(clippy::unused_async, unused_variables, missing_docs, reason = "a placeholder for the next commit")]

use std::{convert::Infallible, path::PathBuf, time::Duration};

use bytes::Bytes;

use super::*;

#[derive(Debug, Clone)]
pub struct Connect {
    pub url: String,
    pub creds: Option<PathBuf>,
    pub namespace: Namespace,
    pub name: String,
}

#[derive(Debug, Clone)]
pub struct Nats(Infallible);
#[derive(Debug)]
pub struct Sending(Infallible);
#[derive(Debug)]
pub struct Subscription(Infallible);
#[derive(Debug)]
pub struct ServiceRequests(Infallible);
#[derive(Debug)]
pub struct Consumption(Infallible);
#[derive(Debug)]
pub(super) struct Acker(Infallible);
#[derive(Debug)]
pub struct Follow(Infallible);

impl Sending {
    pub(super) async fn stored(self) -> Vec<Result<Published, PublishError>> {
        match self.0 {}
    }
}
impl Subscription {
    pub(super) async fn next(&mut self) -> Option<Message> {
        match self.0 {}
    }
}
impl ServiceRequests {
    pub(super) async fn next(&mut self) -> Option<Message> {
        match self.0 {}
    }
}
impl Consumption {
    pub(super) fn want(&mut self, more: usize) {
        match self.0 {}
    }
    pub(super) async fn next(&mut self) -> Delivery {
        match self.0 {}
    }
    pub(super) fn silent_for(&self) -> Duration {
        match self.0 {}
    }
}
impl Acker {
    pub(super) async fn say(&self, said: Said) {
        match self.0 {}
    }
}
impl Follow {
    pub(super) async fn next(&mut self) -> Result<Stored, Error> {
        match self.0 {}
    }
}
impl Nats {
    pub async fn connect(to: &Connect) -> Result<Self, Error> {
        Err(Error::Connect { url: to.url.clone(), reason: "not written yet".into() })
    }
    pub fn namespace(&self) -> &Namespace {
        match self.0 {}
    }
    pub(super) async fn set_up(&self, topology: &Topology) -> Result<(), Error> {
        match self.0 {}
    }
    pub(super) async fn send(&self, messages: Vec<Outgoing>) -> Sending {
        match self.0 {}
    }
    pub(super) async fn broadcast(
        &self,
        subject: &Subject,
        headers: &Headers,
        payload: Bytes,
    ) -> Result<(), Error> {
        match self.0 {}
    }
    pub(super) async fn reply(&self, to: &str, payload: Bytes) -> Result<(), Error> {
        match self.0 {}
    }
    pub(super) async fn request(
        &self,
        subject: &Subject,
        headers: &Headers,
        payload: Bytes,
        timeout: Duration,
    ) -> Result<Bytes, RequestError> {
        match self.0 {}
    }
    pub(super) async fn gather(
        &self,
        subject: &Subject,
        payload: Bytes,
        wait: Duration,
    ) -> Result<Vec<Bytes>, Error> {
        match self.0 {}
    }
    pub(super) async fn serve(&self, subject: &Subject) -> Result<Subscription, Error> {
        match self.0 {}
    }
    pub(super) async fn offer(&self, service: &Service) -> Result<ServiceRequests, Error> {
        match self.0 {}
    }
    pub(super) async fn subscribe(&self, filter: &Filter) -> Result<Subscription, Error> {
        match self.0 {}
    }
    pub(super) async fn consume(&self, consumer: &Consumer) -> Result<Consumption, Error> {
        match self.0 {}
    }
    pub(super) async fn read(&self, filter: &Filter) -> Result<Vec<Stored>, Error> {
        match self.0 {}
    }
    pub(super) async fn last(&self, filter: &Filter) -> Result<Option<Stored>, Error> {
        match self.0 {}
    }
    pub(super) async fn follow(&self, filters: &[Filter], from: From) -> Result<Follow, Error> {
        match self.0 {}
    }
    pub(super) async fn subjects(&self, filter: &Filter) -> Result<Vec<Subject>, Error> {
        match self.0 {}
    }
    pub(super) async fn purge(&self, filter: &Filter) -> Result<(), Error> {
        match self.0 {}
    }
    pub(super) async fn put_object(&self, name: &str, bytes: Bytes) -> Result<(), Error> {
        match self.0 {}
    }
    pub(super) async fn get_object(&self, name: &str) -> Result<Option<Bytes>, Error> {
        match self.0 {}
    }
    pub(super) async fn delete_object(&self, name: &str) -> Result<(), Error> {
        match self.0 {}
    }
    pub(super) async fn ping(&self) -> Result<Duration, Error> {
        match self.0 {}
    }
}
