//! B101, B103: forks are continued as what their first header says, with a parent that is empty or gone.

use std::fs;
use std::sync::Arc;

use threadkeep_record::{Field, GitPatch, HistoryMode, MetadataPatch};
use threadkeep_store::{Archived, CreateThread, ForkRange, ForkThread, ThreadStore as _, WithHistory};

use crate::home::{Home, MODES, header, header_with, id, message, one_more, resume_params, rollout, said};

/// A fork that copied its parent: the first header is whose it is, whoever else is named in it.
#[tokio::test]
async fn b101_the_first_header_is_continued() {
    let mode = HistoryMode::Legacy;
    let home = Home::new();
    let forked = format!("\"forked_from_id\":\"{}\",\"session_id\":\"{}\",", id(1), id(1));
    let was = [header_with(mode, id(2), &forked), rollout(mode, id(1), 2).concat()].concat();
    let path = home.put(id(2), &was);
    home.put(id(1), &rollout(mode, id(1), 2).concat());
    let error = home.resume_in(&home.store(), id(1), Some(&path)).await.expect_err("not the parent's").to_string();
    assert!(error.contains(&format!("belongs to thread {}", id(2))), "{error}");

    let live = home.resume(id(2)).await.expect("it is resumed");
    live.append(&[message(mode, "own words")]).await.expect("appended");
    live.shutdown().await.expect("closed");
    one_more(&path, &was, "own words");
    let thread = home.store().read_thread(id(2), Archived::Excluded, WithHistory::No).await.expect("it");
    assert_eq!((thread.thread_id, thread.forked_from_id, thread.session_id), (id(2), Some(id(1)), Some(id(1))));
    // A decided fact is written as the fork's, not as its parent's.
    let was = fs::read(&path).expect("it");
    let git = GitPatch { branch: Field::Set("topic".into()), ..GitPatch::default() };
    let patch = MetadataPatch { git, ..MetadataPatch::default() };
    let thread = home.store().update_thread_metadata(id(2), patch, Archived::Excluded).await.expect("kept");
    assert_eq!(thread.git_info.and_then(|g| g.branch).as_deref(), Some("topic"));
    let record = one_more(&path, &was, "topic");
    assert_eq!((&record["type"], &record["payload"]["id"]), (&"session_meta".into(), &id(2).to_string().into()));
    let parent = home.store().read_thread(id(1), Archived::Excluded, WithHistory::No).await.expect("it");
    assert_eq!(parent.git_info, None);
}

/// Forks of a parent that said nothing, in both modes, continued and forked again.
#[tokio::test]
async fn b103_an_empty_parent() {
    for mode in MODES {
        let home = Home::new();
        let settings = "{\"type\":\"thread_settings_applied\",\"thread_settings\":{\"model\":\"m\"}}";
        let was = [header(mode, id(1)), crate::home::record(mode, 1, 1, "event_msg", settings)].concat();
        let parent = home.put(id(1), &was);
        let store = home.store();
        for (source, child) in [(1, 2), (2, 3)] {
            let child_params = CreateThread::new(id(child), "/w/p", "test");
            let fork = ForkThread {
                source: id(source),
                archived: Archived::Included,
                range: ForkRange::Whole,
                child: child_params,
            };
            store.fork_thread(fork).await.expect("forked");
            store.shutdown_thread(id(child)).await.expect("closed");
            let live = home.resume_in(&store, id(child), None).await.expect("it is resumed");
            live.append(&[message(mode, &format!("own {child}"))]).await.expect("appended");
            live.shutdown().await.expect("closed");
            let thread = home.store().read_thread(id(child), Archived::Excluded, WithHistory::Yes).await.expect("it");
            assert_eq!(thread.forked_from_id, Some(id(source)));
            let history = thread.history.expect("asked for");
            assert_eq!(history.damaged, 0, "{mode:?}");
            let all: String = history.records.iter().map(|r| String::from_utf8_lossy(&r.0).into_owned()).collect();
            assert!(all.contains(&format!("own {child}")) && all.contains("thread_settings_applied"), "{mode:?} {all}");
        }
        assert!(fs::read(parent).expect("it") == was, "the parent stays");
    }
}

/// A child whose parent's file is gone is continued, named and forked; ordinals go on where its own records are.
#[tokio::test]
async fn b103_a_missing_parent() {
    for mode in MODES {
        let home = Home::new();
        let base = format!(
            "\"forked_from_id\":\"{0}\",\"history_base\":{{\"thread_id\":\"{0}\",\"end_ordinal_exclusive\":7,\
             \"end_byte_offset\":999}},",
            id(1)
        );
        let plain = format!("\"forked_from_id\":\"{}\",", id(1));
        let own = header_with(mode, id(2), if mode == HistoryMode::Paginated { &base } else { &plain });
        let own = String::from_utf8(own).expect("UTF-8").replace("\"ordinal\":0,", "\"ordinal\":7,").into_bytes();
        let said =
            String::from_utf8(said(mode, 1, "own words")).expect("UTF-8").replace("\"ordinal\":1,", "\"ordinal\":8,");
        let was = [own, said.into_bytes()].concat();
        let path = home.put(id(2), &was);
        let live = home.resume(id(2)).await.expect("it is resumed");
        live.append(&[message(mode, "more words")]).await.expect("appended");
        live.shutdown().await.expect("closed");
        let record = one_more(&path, &was, "more words");
        assert_eq!(record["ordinal"].as_u64(), (mode == HistoryMode::Paginated).then_some(9));
        let name = MetadataPatch { name: Field::Set("orphan".into()), ..MetadataPatch::default() };
        let store = home.store();
        let thread = store.update_thread_metadata(id(2), name, Archived::Excluded).await.expect("named");
        assert_eq!(thread.name.as_deref(), Some("orphan"));
        let child = CreateThread::new(id(3), "/w/p", "test");
        let fork = ForkThread { source: id(2), archived: Archived::Included, range: ForkRange::Whole, child };
        store.fork_thread(fork).await.expect("forked");
        store.shutdown_thread(id(3)).await.expect("closed");
        // Three times: nothing is tried again and again, nothing is written.
        let were = home.files();
        for _ in 0..3 {
            let (records, _) = home.history(id(3)).await;
            let all: String = records.iter().map(|r| String::from_utf8_lossy(r).into_owned()).collect();
            assert!(all.contains("own words") && all.contains("more words"), "{mode:?} {all}");
        }
        assert!(were == home.files());
    }
}

/// What a fork inherited is not observed as its own: its metadata begins with what is said in it.
#[tokio::test]
async fn b101_a_continued_fork_moves_by_its_own_output() {
    for mode in MODES {
        let home = Home::new();
        home.put(id(1), &rollout(mode, id(1), 3).concat());
        let store = home.store();
        let child = CreateThread::new(id(2), "/w/p", "test");
        let fork = ForkThread { source: id(1), archived: Archived::Included, range: ForkRange::Whole, child };
        store.fork_thread(fork).await.expect("forked");
        store.shutdown_thread(id(2)).await.expect("closed");
        home.clock.advance(60_000);
        let live = home.resume_in(&store, id(2), None).await.expect("it is resumed");
        let before = live.read(WithHistory::No).await.expect("it");
        let appended = live.append(&[message(mode, "own words")]).await.expect("appended");
        live.shutdown().await.expect("closed");
        let after = home.store().read_thread(id(2), Archived::Excluded, WithHistory::No).await.expect("it");
        assert_eq!(Some(after.updated_at), appended.last());
        assert_eq!(after.created_at, before.created_at);
        let parent = home.store().read_thread(id(1), Archived::Excluded, WithHistory::No).await.expect("it");
        assert!(parent.updated_at < after.updated_at);
        drop(Arc::clone(&home.clock));
    }
}

/// A paginated child of a spawned agent that was not made whole is not continued.
#[tokio::test]
async fn an_inherited_part_that_was_not_finished() {
    let mode = HistoryMode::Paginated;
    let home = Home::new();
    let was = [header_with(mode, id(1), "\"subagent_history_start_ordinal\":9,"), said(mode, 1, "x")].concat();
    home.put(id(1), &was);
    let were = home.files();
    let error = home.store().resume_thread(resume_params(id(1), None)).await.expect_err("incomplete").to_string();
    assert!(error.contains("is incomplete: expected inherited prefix through ordinal 8"), "{error}");
    assert!(were == home.files());
}
