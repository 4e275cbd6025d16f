//! Asks the server for the identity of this process and its permissions.

use serde::Deserialize;

use super::{
    super::message::{ABOUT_US, Identity},
    Error, Nats, failed,
};

#[derive(Deserialize)]
struct Answer {
    data: User,
}

#[derive(Deserialize)]
struct User {
    #[serde(default)]
    user: String,
    #[serde(default)]
    account: String,
    #[serde(default)]
    permissions: Option<Permissions>,
}

#[derive(Deserialize)]
struct Permissions {
    #[serde(default)]
    publish: Option<Subjects>,
    #[serde(default)]
    subscribe: Option<Subjects>,
}

#[derive(Deserialize)]
struct Subjects {
    #[serde(default)]
    allow: Vec<String>,
}

impl Nats {
    pub(in super::super) async fn identity(&self) -> Result<Identity, Error> {
        let doing = "asking the NATS server who we are";
        let asked = self.permitted(ABOUT_US, self.0.client.request(ABOUT_US, bytes::Bytes::new())).await?;
        let answer = asked.map_err(|error| failed(doing, &error))?;
        let Answer { data } =
            serde_json::from_slice(&answer.payload).map_err(|error| failed(doing, &error))?;
        let allowed = |subjects: Option<Subjects>| subjects.map(|subjects| subjects.allow);
        let (publish, subscribe) = match data.permissions {
            Some(Permissions { publish, subscribe }) => (allowed(publish), allowed(subscribe)),
            None => (None, None),
        };
        let encrypted = self.0.client.server_info().tls_required;
        Ok(Identity { user: data.user, account: data.account, publish, subscribe, encrypted })
    }
}
