//! Adds a user to a provider's database, for the tests with foreign clients:
//! `cargo run -p idp --example add_user -- DATABASE NAME EMAIL CLAIMS [GROUP] < PASSWORD`, where CLAIMS is a JSON object.
//! The database must have been begun by a provider; that one may be running.

use std::{
    error::Error,
    io::{self, Read as _},
    time::{SystemTime, UNIX_EPOCH},
};

use auth::time::Timestamp;
use aws_lc_rs::rand::{SecureRandom as _, SystemRandom};
use idp::passwords::{Hasher, Memory, Parameters, Password};
use store::{
    Epoch, Store,
    groups::{AddGroup, AddMember},
    users::{AddUser, StoredPassword, User},
};

const USAGE: &str = "usage: add_user DATABASE NAME EMAIL CLAIMS [GROUP] < PASSWORD";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().ok_or(USAGE);
    let (database, name, email, claims) = (next()?, next()?, next()?, next()?);
    let mut password = String::new();
    io::stdin().read_to_string(&mut password)?;
    let now = clock()?;
    let entropy = SystemRandom::new();
    let mut id = [0; 8];
    entropy.fill(&mut id)?;
    let id: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    let hasher = Hasher::new(Parameters::KEYCLOAK, &entropy)?;
    let phc = hasher.hash(&Password::new(password)?, &entropy, &mut Memory::new())?.encode();
    let user = User {
        id: id.clone(),
        name,
        email: Some(email),
        email_verified_at: Some(now),
        claims,
        created_at: now,
        updated_at: now,
        disabled_at: None,
        tokens_not_before: now,
    };
    let store = Store::open(&database, Epoch([0; 16])).await?;
    store.write(AddUser { user, password: Some(StoredPassword { phc, changed_at: now }) }).await?;
    if let Some(group) = arguments.next() {
        store.write(AddGroup { id: group.clone(), name: group.clone(), now }).await?;
        store.write(AddMember { group, user_id: id }).await?;
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "a program of its own has no other clock")]
fn clock() -> Result<Timestamp, Box<dyn Error>> {
    Ok(Timestamp::from_secs(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs()))
}
