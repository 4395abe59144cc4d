//! What a server answers, and what becomes of it.

use std::time::{Duration, SystemTime};

use mail::{Encryption, OutgoingMail, SendError, SmtpServer, SmtpSettings};
use zeroize::Zeroizing;

use crate::played::{Act, Played, Security};

const TEXT: &str = "Guten Tag,\n\n.with a dot first\nhttps://login.example.com/set-password?token=AbC\n";

fn settings(played: &Played, encryption: Encryption) -> SmtpSettings {
    SmtpSettings {
        host: "localhost".into(),
        port: played.address.port(),
        encryption,
        ca_pem: Some(played.ca_pem.clone().into_bytes()),
        credentials: None,
        from: "Example <login@example.com>".into(),
        timeout: Duration::from_secs(20),
    }
}

async fn send(settings: SmtpSettings) -> Result<String, SendError> {
    let mail = OutgoingMail {
        to: "ada@example.com",
        subject: "Neues Passwort für Sie",
        text: TEXT,
        id: "m1",
        date: SystemTime::UNIX_EPOCH,
    };
    SmtpServer::new(settings).unwrap().send(&mail).await
}

fn with_password(settings: SmtpSettings, password: &str) -> SmtpSettings {
    SmtpSettings { credentials: Some(("postern".into(), Zeroizing::new(password.into()))), ..settings }
}

#[tokio::test]
async fn a_mail_arrives_as_it_was_written_over_each_kind_of_connection() {
    for (security, encryption) in [
        (Security::Implicit, Encryption::Implicit),
        (Security::StartTls, Encryption::StartTls),
        (Security::None, Encryption::None),
    ] {
        let played = Played::start(security, None).await;
        let reply = send(settings(&played, encryption)).await.unwrap();
        assert_eq!(reply, "250 2.0.0 queued as 4711");
        let mails = played.mails();
        let [mail] = mails.as_slice() else { panic!("one mail: {mails:?}") };
        assert_eq!((&*mail.from, &*mail.to[0]), ("<login@example.com>", "<ada@example.com>"));
        assert_eq!(mail.text().trim_end(), TEXT.trim_end());
        assert_eq!(mail.encrypted, encryption != Encryption::None);
        let plain = played.plain();
        assert_eq!(plain.contains("MAIL FROM"), encryption == Encryption::None, "{plain}");
    }
}

#[tokio::test]
async fn credentials_are_sent_once_the_connection_is_encrypted() {
    for (security, encryption) in
        [(Security::Implicit, Encryption::Implicit), (Security::StartTls, Encryption::StartTls)]
    {
        let played = Played::start(security, Some(("postern", "hunter2"))).await;
        send(with_password(settings(&played, encryption), "hunter2")).await.unwrap();
        assert!(played.mails()[0].authenticated);
        assert!(!played.plain().contains("AUTH"), "{}", played.plain());
        let wrong = send(with_password(settings(&played, encryption), "hunter3")).await.unwrap_err();
        assert!(matches!(&wrong, SendError::Unavailable(why) if why.contains("535")), "{wrong:?}");
        let missing = send(settings(&played, encryption)).await.unwrap_err();
        assert!(matches!(&missing, SendError::Refused(why) if why.contains("530")), "{missing:?}");
        assert_eq!(played.mails().len(), 1);
    }
}

#[tokio::test]
async fn nothing_is_sent_without_the_encryption_that_is_asked_for() {
    let plain = Played::start(Security::None, Some(("postern", "hunter2"))).await;
    let refused = send(with_password(settings(&plain, Encryption::StartTls), "hunter2")).await.unwrap_err();
    assert!(matches!(&refused, SendError::Unavailable(why) if why.contains("STARTTLS")), "{refused:?}");
    assert!(!plain.plain().contains("AUTH") && !plain.plain().contains("MAIL"), "{}", plain.plain());

    for (security, encryption) in
        [(Security::Implicit, Encryption::Implicit), (Security::StartTls, Encryption::StartTls)]
    {
        let other = Played::start(security, None).await;
        let stranger = Played::start(security, None).await;
        let ca_pem = Some(other.ca_pem.clone().into_bytes());
        let untrusted = send(SmtpSettings { ca_pem, ..settings(&stranger, encryption) }).await.unwrap_err();
        assert!(
            matches!(&untrusted, SendError::Unavailable(why) if why.contains("certificate")),
            "{untrusted:?}"
        );
        let named = Played::named("other.example", security, None).await;
        let wrong_name = send(settings(&named, encryption)).await.unwrap_err();
        assert!(matches!(&wrong_name, SendError::Unavailable(_)), "{wrong_name:?}");
        assert!(stranger.mails().is_empty() && named.mails().is_empty());
    }
}

#[tokio::test]
async fn replies_say_whether_another_attempt_may_succeed() {
    let played = Played::start(Security::Implicit, None).await;
    for act in [Act::Recipient("550 5.1.1 no such user"), Act::Message("554 5.7.1 not wanted")] {
        played.act(act);
        let refused = send(settings(&played, Encryption::Implicit)).await.unwrap_err();
        assert!(matches!(&refused, SendError::Refused(why) if why.contains("5.")), "{refused:?}");
    }
    for act in [Act::Recipient("450 4.2.1 greylisted"), Act::Message("452 4.3.1 disk full")] {
        played.act(act);
        let deferred = send(settings(&played, Encryption::Implicit)).await.unwrap_err();
        assert!(matches!(&deferred, SendError::Deferred(why) if why.contains("4.")), "{deferred:?}");
    }
    for act in [Act::DropInData, Act::Close] {
        played.act(act);
        let lost = send(settings(&played, Encryption::Implicit)).await.unwrap_err();
        assert!(matches!(&lost, SendError::Unavailable(_)), "{act:?}: {lost:?}");
    }
    assert!(played.mails().is_empty());
    let nobody = SmtpSettings { port: 1, ..settings(&played, Encryption::Implicit) };
    assert!(matches!(send(nobody).await, Err(SendError::Unavailable(_))));
}

#[tokio::test]
async fn a_server_has_a_time_limit_but_an_accepted_mail_is_sent() {
    let played = Played::start(Security::Implicit, None).await;
    played.act(Act::SilentQuit);
    assert_eq!(send(settings(&played, Encryption::Implicit)).await.unwrap(), "250 2.0.0 queued as 4711");
    played.act(Act::Silent);
    let short =
        SmtpSettings { timeout: Duration::from_millis(200), ..settings(&played, Encryption::Implicit) };
    let late = send(short).await.unwrap_err();
    assert!(matches!(&late, SendError::Unavailable(why) if why.contains("0.2 s")), "{late:?}");
    assert_eq!(played.mails().len(), 1);
}
