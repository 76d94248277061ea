//! A rollout that is removed under an open writer: whoever writes on is told, at the latest by the next flush.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use threadkeep_local::{LocalOptions, LocalThreadStore};
use threadkeep_record::{HistoryMode, NewItem, ThreadId};
use threadkeep_rollout::appender::Durability;
use threadkeep_store::{CreateThread, LiveThread, SystemClock, ThreadStore, ThreadStoreError};

fn item(n: u64) -> NewItem {
    NewItem::model_message("user", &format!("item {n}"))
}

/// Takes a rollout of a home away.
type Way = fn(&Path, &Path);

const WAYS: [(&str, Way); 5] = [
    ("the file", |_, path| std::fs::remove_file(path).unwrap()),
    ("its folder", |_, path| std::fs::remove_dir_all(path.parent().unwrap()).unwrap()),
    ("all sessions", |home, _| std::fs::remove_dir_all(home.join("sessions")).unwrap()),
    ("the home", |home, _| std::fs::remove_dir_all(home).unwrap()),
    ("another file in its place", |_, path| {
        let other = path.with_extension("other");
        std::fs::copy(path, &other).unwrap();
        std::fs::rename(other, path).unwrap();
    }),
];

/// What the writer does next.
#[derive(Debug, Clone, Copy)]
enum Next {
    Append,
    Flush,
    Persist,
    Shutdown,
}

async fn open(home: &Path, mode: HistoryMode, durability: Durability) -> (LiveThread, PathBuf) {
    let mut options = LocalOptions::new(home);
    options.durability = durability;
    options.index = None;
    let store: Arc<dyn ThreadStore> = Arc::new(LocalThreadStore::open(options));
    let mut params = CreateThread::new(ThreadId::new_v7(), "/", "test");
    params.history_mode = mode;
    let live = LiveThread::create(store, params, Arc::new(SystemClock)).await.unwrap();
    live.append(&[item(0), item(1)]).await.unwrap();
    let path = live.store().live_rollout_path(live.thread_id()).await.unwrap().unwrap();
    (live, path)
}

#[test]
fn a_removed_rollout_is_noticed_and_nothing_is_acknowledged() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for (what, remove) in WAYS {
        for mode in [HistoryMode::Legacy, HistoryMode::Paginated] {
            for durability in [Durability::None, Durability::OnFlush, Durability::EachAppend] {
                for flushed in [0, 1] {
                    for next in [Next::Append, Next::Flush, Next::Persist, Next::Shutdown] {
                        runtime.block_on(async {
                            let folder = tempfile::tempdir().unwrap();
                            let home = folder.path().join("home");
                            let (live, path) = open(&home, mode, durability).await;
                            for _ in 0..flushed {
                                live.flush().await.unwrap();
                            }
                            remove(&home, &path);
                            let result = match next {
                                Next::Append => live.append(&[item(2)]).await.map(drop),
                                Next::Flush => live.flush().await,
                                Next::Persist => live.persist().await,
                                Next::Shutdown => live.shutdown().await,
                            };
                            let context =
                                format!("{what} removed, {mode:?}, {durability:?}, {flushed} flushes, {next:?}");
                            let Err(ThreadStoreError::Internal { message }) = result else {
                                panic!("{context}: {result:?}")
                            };
                            let told = message.contains("was removed") && message.contains(path.to_str().unwrap());
                            assert!(told, "{context}: {message}");
                            // It stays so, and the writer can still be closed.
                            assert!(live.append(&[item(3)]).await.is_err(), "{context}");
                            live.discard().await.unwrap();
                        });
                    }
                }
            }
        }
    }
}

/// Before the first record there is nothing to be removed: folders are made again.
#[test]
fn a_home_that_is_removed_before_the_first_record_is_made_again() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().join("home");
        std::fs::create_dir(&home).unwrap();
        let store: Arc<dyn ThreadStore> = Arc::new(LocalThreadStore::open(LocalOptions::new(&home)));
        let params = CreateThread::new(ThreadId::new_v7(), "/", "test");
        let live = LiveThread::create(store, params, Arc::new(SystemClock)).await.unwrap();
        std::fs::remove_dir_all(&home).unwrap();
        live.append(&[item(0)]).await.unwrap();
        live.flush().await.unwrap();
        let path = live.store().live_rollout_path(live.thread_id()).await.unwrap().unwrap();
        assert!(std::fs::read_to_string(path).unwrap().contains("item 0"));
    });
}
