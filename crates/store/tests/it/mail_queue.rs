//! Mail queue: one mail per user, taken by one node at a time.

use std::time::Duration;

use auth::time::Timestamp;
use store::Store;
use store::account_links::{IssueAccountLink, LinkKind};
use store::mail_queue::{
    AddressMail, MailOrigin, MailRecipient, QueueMail, QueuedMail, RemoveMail, TakeDueMails,
};
use store::users::{DeleteUser, RevokeUser, UserRevocation};

use crate::account_links::issue;
use crate::databases::{NOW, add_user, digest, on_both, password, revocation};

const HOUR: Duration = Duration::from_hours(1);
const MINUTE: Duration = Duration::from_mins(1);

fn mail(id: &str, recipient: MailRecipient) -> QueuedMail {
    QueuedMail {
        id: id.into(),
        recipient,
        origin: MailOrigin::User,
        language: "de".into(),
        address: Some("192.0.2.7".into()),
        attempts: 0,
        expires_at: NOW.plus(HOUR),
    }
}

/// Queues a mail for a typed name.
pub(crate) async fn queue_typed(store: &Store, id: &str) {
    let mail = mail(id, MailRecipient::Typed(b"sealed".to_vec()));
    store.write(QueueMail { mail, due_at: NOW }).await.unwrap();
}

async fn queue_for_ada(store: &Store, id: &str) {
    let mail = mail(id, MailRecipient::User("id-ada".into()));
    store.write(QueueMail { mail, due_at: NOW }).await.unwrap();
}

async fn take(store: &Store, now: Timestamp) -> Vec<QueuedMail> {
    store.write(TakeDueMails { limit: 10, retry_after: MINUTE, now }).await.unwrap()
}

async fn address(store: &Store, id: &str) -> bool {
    let read_at = store.user("id-ada").await.unwrap().unwrap().read_at;
    let link = IssueAccountLink {
        user_id: "id-ada".into(),
        read_at,
        digest: digest(id),
        kind: LinkKind::Reset,
        now: NOW,
        expires_at: NOW.plus(HOUR * 2),
    };
    store.write(AddressMail { id: id.into(), link }).await.unwrap()
}

async fn works(store: &Store, id: &str) -> bool {
    store.account_link(&digest(id), NOW).await.unwrap().is_some()
}

on_both! {
    async fn attempts_are_postponed_twice_as_long_each_time(database: Database) {
        let store = database.open().await;
        queue_typed(&store, "m").await;
        assert!(!store.is_mail_due(NOW.minus(MINUTE)).await.unwrap() && store.is_mail_due(NOW).await.unwrap());
        let expected = QueuedMail { attempts: 1, ..mail("m", MailRecipient::Typed(b"sealed".to_vec())) };
        assert_eq!(take(&store, NOW).await, [expected]);
        let mut at = NOW;
        for (attempts, pause) in [(2, 1), (3, 2), (4, 4), (5, 8), (6, 16), (7, 32), (8, 32)] {
            let due = at.plus(MINUTE * pause);
            assert!(!store.is_mail_due(due.minus(Duration::from_millis(1))).await.unwrap(), "{attempts}");
            assert_eq!(take(&store, due).await[0].attempts, attempts, "an expired one, too");
            at = due;
        }
        assert!(store.write(RemoveMail { id: "m".into() }).await.unwrap());
        assert!(!store.write(RemoveMail { id: "m".into() }).await.unwrap(), "it is gone");
        assert!(!store.is_mail_due(Timestamp::MAX).await.unwrap());
    }

    async fn one_of_many_nodes_takes_a_mail(database: Database) {
        let store = database.open().await;
        for n in 0..5 {
            queue_typed(&store, &format!("m{n}")).await;
        }
        let tasks = (0..8).map(|_| {
            let store = store.clone();
            tokio::spawn(async move { take(&store, NOW).await.len() })
        });
        let mut taken = 0;
        for task in tasks.collect::<Vec<_>>() {
            taken += task.await.unwrap();
        }
        assert_eq!(taken, 5);
    }

    async fn a_mail_is_addressed_once_with_its_link(database: Database) {
        let store = database.open().await;
        add_user(&store, "ada").await;
        issue(&store, "earlier").await;
        queue_for_ada(&store, "other").await;
        queue_typed(&store, "m").await;
        assert!(!address(&store, "unknown").await && !works(&store, "unknown").await);
        assert!(works(&store, "earlier").await, "nothing has changed");
        assert!(address(&store, "m").await);
        assert!(works(&store, "m").await && !works(&store, "earlier").await);
        assert!(!address(&store, "m").await, "it is addressed already");
        let [taken] = &*take(&store, NOW).await else { panic!("the other mail is replaced") };
        let expected = mail("m", MailRecipient::User("id-ada".into()));
        assert_eq!(*taken, QueuedMail { attempts: 1, expires_at: NOW.plus(HOUR * 2), ..expected });
    }

    async fn whatever_ends_the_link_ends_the_mail(database: Database) {
        let store = database.open().await;
        add_user(&store, "ada").await;
        queue_for_ada(&store, "m").await;
        assert!(issue(&store, "newer").await);
        assert!(!store.is_mail_due(NOW).await.unwrap(), "another link replaces it");
        let revoke = |account_change| RevokeUser {
            user_id: "id-ada".into(), account_change, revocation: revocation("ada"), deliver_until: None, now: NOW,
        };
        for change in [
            UserRevocation::Password(password("other")), UserRevocation::Everything, UserRevocation::Disabled,
        ] {
            queue_for_ada(&store, "m").await;
            assert!(store.write(revoke(change)).await.unwrap());
            assert!(!store.is_mail_due(NOW).await.unwrap());
        }
        queue_typed(&store, "typed").await;
        assert!(!address(&store, "typed").await, "the account is disabled");
        queue_for_ada(&store, "m").await;
        let delete = DeleteUser {
            user_id: "id-ada".into(), revocation: revocation("ada"), deliver_until: None, now: NOW,
        };
        assert!(store.write(delete).await.unwrap());
        assert_eq!(take(&store, NOW).await.len(), 1, "only that of the typed name is left");
    }

    async fn mails_that_nobody_takes_are_deleted(database: Database) {
        let store = database.open().await;
        queue_typed(&store, "m").await;
        let swept = async |after: Duration| store.delete_expired(NOW.plus(after), HOUR).await.unwrap().expired;
        assert_eq!(swept(HOUR * 24).await, 0);
        assert_eq!(swept(HOUR * 25).await, 1);
    }
}
