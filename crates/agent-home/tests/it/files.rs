//! The files of a task home beside its rollouts.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use threadkeep_agent_home::config::Patch;
use threadkeep_agent_home::{HomeError, Options, World, prepare};

use crate::place::{NOW, Place, mode, run};

#[test]
fn what_is_linked_what_is_copied_and_what_stays_out() {
    let place = Place::new();
    for (file, bytes) in [
        ("auth.json", "login"),
        ("config.toml", "model = \"m\"\nsqlite_home = \"/tmp/db\"\n"),
        ("config.json", "{}"),
        ("instructions.md", "do"),
        ("AGENTS.md", "agents"),
        ("prompts/p.md", "prompt"),
        ("skills/one/SKILL.md", "skill"),
        ("skills/.system/x", "hidden"),
        ("plugins/cache/p/x", "plugin"),
        ("memories/raw_memories.md", "memory"),
        ("state_5.sqlite", "database"),
        ("session_index.jsonl", "names"),
        ("history.jsonl", "prompts"),
        ("goals_1.sqlite", "goals"),
    ] {
        place.write(format!("shared/{file}"), bytes);
    }
    fs::set_permissions(place.shared().join("config.toml"), fs::Permissions::from_mode(0o644)).unwrap();
    fs::set_permissions(place.shared().join("config.json"), fs::Permissions::from_mode(0o400)).unwrap();
    let before = place.snapshot(&place.shared());
    run(&place.options("one"));
    let home = place.task("one");
    for link in ["auth.json", "AGENTS.md", "prompts", "skills/one", "plugins/cache"] {
        assert!(home.join(link).symlink_metadata().unwrap().is_symlink(), "{link}");
        assert!(home.join(link).exists(), "{link}");
    }
    let config = fs::read_to_string(home.join("config.toml")).unwrap();
    assert!(config.contains("model = \"m\"") && !config.contains("sqlite_home") && config.contains("memories = false"));
    assert_eq!((mode(&home.join("config.toml")), mode(&home.join("config.json"))), (0o600, 0o400));
    assert_eq!(mode(&home), 0o700);
    for out in
        ["memories", "state_5.sqlite", "session_index.jsonl", "history.jsonl", "goals_1.sqlite", "skills/.system"]
    {
        assert!(home.join(out).symlink_metadata().is_err(), "{out}");
    }
    let mut after = place.snapshot(&place.shared());
    after.retain(|path, _| !path.starts_with("threadkeep") && !path.starts_with("thread-writer-locks"));
    assert_eq!(after, before, "the shared home is as it was");
}

#[test]
fn the_login_is_a_link_whatever_stood_there() {
    for variant in ["stale file", "own file", "broken link", "wrong link", "folder"] {
        let place = Place::new();
        place.write("shared/auth.json", "login");
        fs::create_dir_all(place.task("one")).unwrap();
        let auth = place.task("one").join("auth.json");
        match variant {
            "stale file" => fs::write(&auth, "login").unwrap(),
            "own file" => fs::write(&auth, "another login").unwrap(),
            "broken link" => symlink("nowhere", &auth).unwrap(),
            "wrong link" => symlink(place.write("other.json", "other"), &auth).unwrap(),
            _ => fs::create_dir(&auth).unwrap(),
        }
        let done = run(&place.options("one"));
        assert_eq!(fs::read_link(&auth).unwrap(), place.shared().join("auth.json"), "{variant}");
        let told = done.report.repaired.join("\n");
        assert!(told.contains("auth.json") && !told.contains("login"), "{variant}: {told}");
        let kept = place.task("one").join("auth.json.aside-1");
        assert_eq!(kept.exists(), matches!(variant, "own file" | "folder"), "{variant}");
        // Rotated: the link says what is now.
        fs::write(place.shared().join("auth.json"), "rotated").unwrap();
        assert_eq!(fs::read_to_string(&auth).unwrap(), "rotated");
        // Logged out: no login stays behind.
        fs::remove_file(place.shared().join("auth.json")).unwrap();
        run(&place.options("one"));
        assert!(auth.symlink_metadata().is_err(), "{variant}");
    }
}

#[test]
fn configs_follow_their_source() {
    let place = Place::new();
    place.write("shared/config.json", "1");
    place.write("shared/config.toml", "model_instructions_file = \"deep/in.md\"\n");
    place.write("shared/deep/in.md", "instructions");
    run(&place.options("one"));
    let home = place.task("one");
    assert_eq!(fs::read_to_string(home.join("deep/in.md")).unwrap(), "instructions");
    place.write("shared/config.json", "2");
    place.write("shared/deep/in.md", "new");
    run(&place.options("one"));
    assert_eq!(fs::read_to_string(home.join("config.json")).unwrap(), "2");
    assert_eq!(fs::read_to_string(home.join("deep/in.md")).unwrap(), "new");
    fs::remove_file(place.shared().join("config.json")).unwrap();
    fs::remove_file(place.shared().join("config.toml")).unwrap();
    place.write("tasks/one/deep/mine.md", "mine");
    run(&place.options("one"));
    assert!(!home.join("config.json").exists() && !home.join("deep/in.md").exists());
    assert!(home.join("deep/mine.md").exists(), "what we did not copy stays");
    assert!(home.join("config.toml").exists(), "memories are switched off in every home");
}

#[test]
fn what_a_config_names_stays_beside_it() {
    for (text, planted) in [
        ("model_instructions_file = \"../secret\"", false),
        ("model_instructions_file = \"missing.md\"", false),
        ("model_instructions_file = \"link.md\"", true),
        ("model_instructions_file = \"folder/x.md\"", true),
        ("model = ", false),
    ] {
        let place = Place::new();
        place.write("shared/config.toml", text);
        let secret = place.write("secret", "secret");
        if planted {
            symlink(&secret, place.shared().join("link.md")).unwrap();
            symlink(place.dir.path(), place.shared().join("folder")).unwrap();
        }
        let error = prepare(&place.options("one"), &World::at(NOW)).unwrap_err();
        assert!(!error.to_string().contains("secret\n"), "{text}: {error}");
    }
}

#[test]
fn a_link_planted_in_a_task_home_is_not_written_through() {
    let place = Place::new();
    place.write("shared/config.toml", "model_instructions_file = \"d/in.md\"\n");
    place.write("shared/d/in.md", "instructions");
    place.write("shared/config.json", "config");
    let victim = place.write("victim/in.md", "victim");
    fs::create_dir_all(place.task("one")).unwrap();
    symlink(place.dir.path().join("victim"), place.task("one").join("d")).unwrap();
    symlink(&victim, place.task("one").join("config.json")).unwrap();
    prepare(&place.options("one"), &World::at(NOW)).unwrap_err();
    assert_eq!(fs::read_to_string(&victim).unwrap(), "victim");
}

#[test]
fn callers_patches_and_their_own_files_count() {
    let place = Place::new();
    place.write("shared/config.toml", "model = \"m\"\n[features]\nmemories = true\n");
    place.write("shared/AGENTS.md", "the person's");
    place.write("shared/skills/one/SKILL.md", "the person's");
    place.write("tasks/one/AGENTS.md", "the task's");
    place.write("tasks/one/skills/one/SKILL.md", "the task's");
    let patches = ["model=\"x\"", "features.web=true", "sandbox_mode=read-only"];
    let config = patches.iter().map(|p| Patch::parse(p).unwrap()).collect();
    let done = run(&Options { config, ..place.options("one") });
    let text = fs::read_to_string(place.task("one").join("config.toml")).unwrap();
    for wanted in ["model = \"x\"", "web = true", "memories = false", "sandbox_mode = \"read-only\""] {
        assert!(text.contains(wanted), "{wanted} in {text}");
    }
    assert_eq!(fs::read_to_string(place.task("one").join("AGENTS.md")).unwrap(), "the task's");
    assert_eq!(fs::read_to_string(place.task("one").join("skills/one/SKILL.md")).unwrap(), "the task's");
    assert_eq!(done.report.kept.len(), 2, "{:?}", done.report.kept);
}

/// Codex 0.171 does not start in a home where one of these is missing.
#[test]
fn every_file_that_the_config_names_beside_itself_comes() {
    let place = Place::new();
    place.write(
        "shared/config.toml",
        "profile = \"p\"\nexperimental_compact_prompt_file = \"compact.md\"\nsome_new_file = \"new.md\"\n\
         other_file = \"missing.md\"\nnot_a_path = \"stays.md\"\n\
         [agents]\nmax_threads = 3\n[agents.x]\nconfig_file = \"roles/x.toml\"\n\
         [profiles.p]\nmodel_instructions_file = \"p.md\"\n[profiles.q]\nmodel_instructions_file = \"gone.md\"\n",
    );
    let come = ["compact.md", "new.md", "roles/x.toml", "p.md"];
    for file in come.iter().chain(&["stays.md"]) {
        place.write(format!("shared/{file}"), "text");
    }
    let done = run(&place.options("one"));
    for file in come {
        assert_eq!(fs::read_to_string(place.task("one").join(file)).unwrap(), "text", "{file}");
    }
    assert!(!place.task("one").join("stays.md").exists());
    assert!(done.report.copied.iter().any(|c| c == "roles/x.toml"), "{:?}", done.report.copied);
    drop(done);
    assert!(run(&place.options("one")).report.copied.is_empty(), "once");
    for missing in ["compact.md", "roles/x.toml", "p.md"] {
        let path = place.shared().join(missing);
        fs::remove_file(&path).unwrap();
        let error = prepare(&place.options("one"), &World::at(NOW)).unwrap_err();
        assert!(error.to_string().contains(missing), "{error}");
        fs::write(path, "text").unwrap();
    }
}

#[test]
fn a_linked_file_that_the_config_names_is_copied() {
    let place = Place::new();
    place
        .write("shared/config.toml", "model_instructions_file = \"inst.md\"\n[agents.x]\nconfig_file = \"d/x.toml\"\n");
    place.write("shared/real/inst.md", "instructions");
    place.write("shared/real/x.toml", "role");
    symlink("real/inst.md", place.shared().join("inst.md")).unwrap();
    symlink("real", place.shared().join("d")).unwrap();
    run(&place.options("one"));
    let home = place.task("one");
    for (file, text) in [("inst.md", "instructions"), ("d/x.toml", "role")] {
        assert_eq!(fs::read_to_string(home.join(file)).unwrap(), text);
        assert!(!home.join(file).symlink_metadata().unwrap().is_symlink());
    }
}

#[test]
fn a_config_does_not_name_its_way_to_what_is_no_tasks() {
    for named in [
        "config.toml",
        "auth.json",
        "inst.md",
        "state_5.sqlite",
        "threadkeep-home.json",
        "memories/m.md",
        "sessions/x",
        "AGENTS.md",
    ] {
        let place = Place::new();
        let config = format!("model_instructions_file = \"{named}\"\n[features]\nmemories = true\n");
        place.write("shared/config.toml", config);
        for file in ["auth.json", "state_5.sqlite", "threadkeep-home.json", "memories/m.md", "sessions/x", "AGENTS.md"]
        {
            place.write(format!("shared/{file}"), "secret");
        }
        symlink("auth.json", place.shared().join("inst.md")).unwrap();
        run(&place.options("one"));
        let home = place.task("one");
        assert!(fs::read_to_string(home.join("config.toml")).unwrap().contains("memories = false"), "{named}");
        for file in ["state_5.sqlite", "memories", "sessions/x", "inst.md"] {
            assert!(home.join(file).symlink_metadata().is_err(), "{named}: {file}");
        }
        assert_ne!(fs::read_to_string(home.join("threadkeep-home.json")).unwrap(), "secret");
        for link in ["auth.json", "AGENTS.md"] {
            assert!(home.join(link).symlink_metadata().unwrap().is_symlink(), "{named}: {link}");
        }
        let before = place.snapshot(&home);
        let again = run(&place.options("one")).report;
        assert!(again.copied.is_empty() && again.repaired.is_empty(), "{named}: {again:?}");
        assert_eq!(place.snapshot(&home), before, "{named}");
    }
}

/// An agent without a login would only fail later.
#[test]
fn a_login_that_leads_nowhere_is_an_error() {
    let place = Place::new();
    symlink("/gone/auth.json", place.shared().join("auth.json")).unwrap();
    let error = prepare(&place.options("one"), &World::at(NOW)).unwrap_err();
    assert!(matches!(error, HomeError::Refused { .. }) && error.to_string().contains("auth.json"), "{error}");
}

#[test]
fn what_is_replaced_or_left_is_told() {
    let place = Place::new();
    place.write("shared/config.toml", "model = \"m\"\n");
    place.write("tasks/one/auth.json", "an old login");
    symlink(place.write("elsewhere.toml", "x"), place.task("one").join("config.toml")).unwrap();
    let done = run(&place.options("one"));
    assert!(
        done.report.repaired.iter().any(|r| r.starts_with("config.toml") && r.contains("elsewhere.toml")),
        "{done:?}"
    );
    assert!(done.report.kept.iter().any(|k| k.starts_with("auth.json")), "{done:?}");
    assert_eq!(fs::read_to_string(place.task("one").join("auth.json")).unwrap(), "an old login");
    assert_eq!(fs::read_to_string(place.dir.path().join("elsewhere.toml")).unwrap(), "x");
}

#[test]
fn a_home_that_was_open_to_others_is_not_any_more() {
    let place = Place::new();
    fs::create_dir_all(place.task("one")).unwrap();
    fs::set_permissions(place.task("one"), fs::Permissions::from_mode(0o755)).unwrap();
    let done = run(&place.options("one"));
    assert_eq!(mode(&place.task("one")), 0o700);
    assert!(done.report.repaired.iter().any(|r| r.contains("755")), "{done:?}");
    drop(done);
    assert!(run(&place.options("one")).report.repaired.is_empty());
}

#[test]
fn things_that_stand_where_ours_belong_are_refused_or_kept() {
    for name in [".threadkeep.lock", "threadkeep-home.json"] {
        for link in [true, false] {
            let place = Place::new();
            let victim = place.write("victim", "{}");
            fs::create_dir_all(place.task("one")).unwrap();
            let path = place.task("one").join(name);
            if link { symlink(&victim, &path) } else { fs::create_dir(&path) }.unwrap();
            let error = prepare(&place.options("one"), &World::at(NOW)).unwrap_err();
            assert!(matches!(error, HomeError::Refused { .. }), "{name}: {error:?}");
        }
    }
    let place = Place::new();
    place.write("shared/plugins/cache/c", "plugin");
    place.write("elsewhere/x", "x");
    fs::create_dir_all(place.task("one")).unwrap();
    symlink(place.dir.path().join("elsewhere"), place.task("one").join("plugins")).unwrap();
    let done = run(&place.options("one"));
    assert!(done.report.kept.iter().any(|k| k.starts_with("plugins")), "{done:?}");
    assert!(!place.dir.path().join("elsewhere/cache").exists());
}

/// The caller's own changes were told as a fault of the person's config.
#[test]
fn changes_that_do_not_fit_are_the_callers() {
    let with = |place: &Place, patches: &[&str]| {
        let config = patches.iter().map(|p| Patch::parse(p).unwrap()).collect();
        prepare(&Options { config, ..place.options("one") }, &World::at(NOW)).unwrap_err()
    };
    for patches in [&["a.b=1", "a.b.c=2"][..], &["features=5"], &["model.x=1"]] {
        let place = Place::new();
        place.write("shared/config.toml", "model = \"m\"\n");
        let error = with(&place, patches);
        assert!(matches!(error, HomeError::Usage { .. }), "{patches:?}: {error:?}");
    }
    let place = Place::new();
    place.write("shared/config.toml", "features = 5\n");
    assert!(matches!(with(&place, &["a=1"]), HomeError::Malformed { .. }));
}
