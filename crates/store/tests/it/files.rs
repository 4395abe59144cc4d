//! Database files and their permissions.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use store::{Store, sqlite_url};

use crate::databases::{EPOCH, add_user};

fn mode(file: &Path) -> u32 {
    let metadata = fs::metadata(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    metadata.permissions().mode() & 0o777
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_database_is_for_its_owner_alone() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("facts 100%?.db");
    let store = Store::open(&sqlite_url(&file), EPOCH).await.unwrap();
    add_user(&store, "ada").await;
    for beside in ["", "-wal", "-shm"] {
        let mut file = file.clone().into_os_string();
        file.push(beside);
        assert_eq!(mode(Path::new(&file)), 0o600, "{}", file.display());
    }
    store.close().await;
    // The administrator's choice of permissions is respected.
    fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
    let store = Store::open(&sqlite_url(&file), EPOCH).await.unwrap();
    assert!(store.user_by_login("ada").await.unwrap().is_some());
    assert_eq!(mode(&file), 0o640);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closed_database_is_one_file() {
    let folder = tempfile::tempdir().unwrap();
    for run in 0..100 {
        let store = Store::open(&sqlite_url(&folder.path().join(format!("{run}.db"))), EPOCH).await.unwrap();
        let mut reads = tokio::task::JoinSet::new();
        for _ in 0..8 {
            let store = store.clone();
            reads.spawn(async move { store.head().await.unwrap() });
        }
        add_user(&store, "ada").await;
        reads.join_all().await;
        store.close().await;
    }
    let files = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
    let left: Vec<_> = files.filter(|file| file.extension().is_none_or(|kind| kind != "db")).collect();
    assert!(left.is_empty(), "write-ahead logs that were not copied: {left:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_may_not_be_made_is_not_made() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("facts.db");
    let url = sqlite_url(&file).replace("mode=rwc", "mode=rw");
    assert!(Store::open(&url, EPOCH).await.is_err());
    assert!(!file.exists());
    let nowhere = sqlite_url(&folder.path().join("gone/facts.db"));
    let refused = Store::open(&nowhere, EPOCH).await.err().unwrap().to_string();
    assert!(refused.starts_with("database unavailable: "), "{refused}");
}
