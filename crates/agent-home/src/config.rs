//! The task's `config.toml`: the shared one with the caller's changes, memories switched off, and no way out of the home.

use std::path::{Component, Path, PathBuf};

use toml_edit::{DocumentMut, Item, Table, TableLike, Value};

/// A change of the caller: a dotted key, and its value as TOML.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Patch {
    /// Keys from the root on.
    pub key: Vec<String>,
    /// The value, as TOML text.
    pub value: String,
}

/// Keys of the root and of profiles whose files are copied along when they name one beside the config
/// (`agent-homes.md` 1.3, and what Codex 0.171 reads). Codex does not start where such a file is missing.
const REFERRED: [&str; 4] = [
    "model_catalog_json",
    "model_instructions_file",
    "experimental_instructions_file",
    "experimental_compact_prompt_file",
];
/// How a key ends that names a file, by what is known of others.
const FILE_KEY: &str = "_file";
/// The same in each table of `agents`.
const ROLE_KEY: &str = "config_file";

/// What is set in every task home: memories never cross conversations.
const FIXED: [(&[&str], bool); 3] = [
    (&["features", "memories"], false),
    (&["memories", "generate_memories"], false),
    (&["memories", "use_memories"], false),
];

/// A config as it is written, and what it needs beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskConfig {
    /// Its text.
    pub text: String,
    /// Files that it names.
    pub needs: Vec<Need>,
    /// What was taken out.
    pub dropped: Vec<String>,
}

/// A file that a config names beside itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need {
    /// Relative to the home.
    pub path: PathBuf,
    /// Whether Codex can do without.
    pub strength: Strength,
}

/// Whether a file that a config names has to be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strength {
    /// Codex reads it whenever it starts.
    Must,
    /// It is of a profile that is not in use, or of a key that is not known.
    May,
}

impl Patch {
    /// Parses `a.b.c=value`; a key may be quoted as in TOML. A value that is no TOML is taken as text.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (key, value) = text.split_once('=').ok_or_else(|| format!("{text:?} is not KEY=VALUE"))?;
        let keys = toml_edit::Key::parse(key.trim()).map_err(|e| format!("{key:?} is not a key: {e}"))?;
        let value = value.trim();
        let value = match value.parse::<Value>() {
            Ok(v) => v.to_string().trim().to_owned(),
            Err(_) => Value::from(value).to_string().trim().to_owned(),
        };
        Ok(Self { key: keys.iter().map(|k| k.get().to_owned()).collect(), value })
    }
}

/// Makes the task's config from the shared one.
pub fn make(shared: &str, patches: &[Patch]) -> Result<TaskConfig, String> {
    let mut doc: DocumentMut = shared.parse().map_err(|e: toml_edit::TomlError| e.to_string())?;
    let mut dropped = Vec::new();
    // A database folder of the user's would be shared by every task.
    if doc.remove("sqlite_home").is_some() {
        dropped.push("config.toml: sqlite_home, the task has its own databases".to_owned());
    }
    for patch in patches {
        let value: Value = patch.value.parse().map_err(|e| format!("{}: {e}", patch.key.join(".")))?;
        set(doc.as_table_mut(), &patch.key, value)?;
    }
    for (key, value) in FIXED {
        let key: Vec<String> = key.iter().map(|k| (*k).to_owned()).collect();
        set(doc.as_table_mut(), &key, value.into())?;
    }
    let chosen = doc.get("profile").and_then(Item::as_str).map(str::to_owned);
    if let Some(profiles) = doc.get_mut("profiles").and_then(Item::as_table_like_mut) {
        for (_, profile) in profiles.iter_mut() {
            let Some(profile) = profile.as_table_like_mut() else { continue };
            forget(profile)?;
        }
    }
    let mut needs = Vec::new();
    named(doc.as_table(), Strength::Must, &mut needs)?;
    for (name, profile) in tables(doc.get("profiles")) {
        let strength = if chosen.as_deref() == Some(name) { Strength::Must } else { Strength::May };
        named(profile, strength, &mut needs)?;
    }
    for (role, table) in tables(doc.get("agents")) {
        if let Some(text) = table.get(ROLE_KEY).and_then(Item::as_str) {
            let path = beside(text).map_err(|why| format!("agents.{role}.{ROLE_KEY}: {why}"))?;
            needs.extend(path.map(|path| Need { path, strength: Strength::Must }));
        }
    }
    Ok(TaskConfig { text: doc.to_string(), needs, dropped })
}

/// Switches off in a profile what is off in every home, where the profile says anything of it.
fn forget(profile: &mut dyn TableLike) -> Result<(), String> {
    for (key, value) in FIXED {
        let [table, name] = key else { continue };
        let says = profile.get(table).and_then(Item::as_table_like).is_some_and(|t| t.contains_key(name));
        if says {
            set(profile, &[(*table).to_owned(), (*name).to_owned()], value.into())?;
        }
    }
    Ok(())
}

fn tables(item: Option<&Item>) -> impl Iterator<Item = (&str, &dyn TableLike)> {
    item.and_then(Item::as_table_like)
        .into_iter()
        .flat_map(|table| table.iter())
        .filter_map(|(name, item)| Some((name, item.as_table_like()?)))
}

/// The files that a table names beside the config.
fn named(table: &dyn TableLike, strength: Strength, needs: &mut Vec<Need>) -> Result<(), String> {
    for (key, item) in table.iter() {
        let known = REFERRED.contains(&key);
        let (Some(text), true) = (item.as_str(), known || key.ends_with(FILE_KEY)) else { continue };
        let strength = if known { strength } else { Strength::May };
        match (beside(text), strength) {
            (Ok(path), _) => needs.extend(path.map(|path| Need { path, strength })),
            (Err(why), Strength::Must) => return Err(format!("{key}: {why}")),
            (Err(_), Strength::May) => {}
        }
    }
    Ok(())
}

/// A path that is relative to the home; absolute ones and those of the user's folder are left to Codex.
fn beside(text: &str) -> Result<Option<PathBuf>, String> {
    let path = Path::new(text);
    if path.is_absolute() || text.starts_with("~/") {
        return Ok(None);
    }
    let local = path.components().all(|c| matches!(c, Component::Normal(_) | Component::CurDir));
    if !local || text.starts_with('~') || text.is_empty() {
        return Err(format!("{text:?} is not a file beside the config"));
    }
    Ok(Some(path.components().filter(|c| matches!(c, Component::Normal(_))).collect()))
}

/// Sets a value, in the table that is there, however that is spelt, or in a new one.
fn set(table: &mut dyn TableLike, key: &[String], value: Value) -> Result<(), String> {
    let Some((first, rest)) = key.split_first() else { return Err("an empty key".into()) };
    if rest.is_empty() {
        match table.get_mut(first).and_then(Item::as_value_mut) {
            Some(there) => {
                let decor = there.decor().clone();
                if there.to_string().trim() != value.to_string().trim() {
                    *there = value;
                    *there.decor_mut() = decor;
                }
            }
            None => {
                table.insert(first, Item::Value(value));
            }
        }
        return Ok(());
    }
    if !table.contains_key(first) {
        // An inline table takes it as an inline one.
        table.insert(first, Item::Table(Table::new()));
    }
    match table.get_mut(first).and_then(Item::as_table_like_mut) {
        Some(below) => set(below, rest, value),
        None => Err(format!("{first} is not a table")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str, path: &[&str]) -> Option<String> {
        let doc: DocumentMut = text.parse().unwrap();
        let mut item = doc.as_item();
        for key in path {
            item = item.get(key)?;
        }
        Some(item.to_string().trim().to_owned())
    }

    #[test]
    fn memories_are_off_however_the_tables_are_spelt() {
        for shared in [
            "",
            "model = \"m\"\n",
            "[features]\nmemories = true # mine\n[memories]\nuse_memories = true\n",
            "features = { memories = true, web = true }\nmemories = { use_memories = true }\n",
            "features.memories = true\nmemories.generate_memories = true\n",
            "[ features ]\n'memories' = true\n[a.b]\nc = '''\n[features]\nmemories = true\n'''\n",
        ] {
            let made = make(shared, &[]).unwrap();
            for path in [["features", "memories"], ["memories", "generate_memories"], ["memories", "use_memories"]] {
                let found = value(&made.text, &path).unwrap();
                assert!(found.starts_with("false"), "{shared:?} {path:?}: {found}");
            }
            assert_eq!(make(&made.text, &[]).unwrap().text, made.text, "a second time changes nothing");
        }
    }

    #[test]
    fn a_profile_does_not_switch_memories_on() {
        for shared in [
            "profile = \"p\"\n[profiles.p.features]\nmemories = true\nweb = true\n",
            "profile = \"p\"\n[profiles.p]\nfeatures.memories = true\nfeatures.web = true\n",
            "profiles = { p = { features = { memories = true, web = true } } }\n",
        ] {
            let made = make(shared, &[]).unwrap();
            let found = value(&made.text, &["profiles", "p", "features", "memories"]).unwrap();
            assert!(found.starts_with("false"), "{shared}: {}", made.text);
            assert!(value(&made.text, &["profiles", "p", "features", "web"]).unwrap().starts_with("true"));
            assert_eq!(make(&made.text, &[]).unwrap().text, made.text);
        }
        let quiet = make("[profiles.p]\nmodel = \"m\"\n", &[]).unwrap().text;
        assert!(value(&quiet, &["profiles", "p", "features"]).is_none(), "{quiet}");
    }

    #[test]
    fn what_was_not_asked_for_stays_byte_for_byte() {
        let shared = "# top\nmodel = \"m\" # why\n\n[mcp_servers.x]\ncommand = 'c'\n";
        let made = make(shared, &[Patch::parse("model=other").unwrap()]).unwrap();
        assert!(
            made.text.starts_with("# top\nmodel = \"other\" # why\n\n[mcp_servers.x]\ncommand = 'c'\n"),
            "{}",
            made.text
        );
        assert!(!made.text.contains("sandbox"), "no sandbox policy of ours");
    }

    #[test]
    fn callers_values_are_toml_or_text() {
        for (text, wanted) in [("a.b=1", "1"), ("a.b=[1, 2]", "[1, 2]"), ("a.b=plain words", "\"plain words\"")] {
            let made = make("", &[Patch::parse(text).unwrap()]).unwrap();
            assert_eq!(value(&made.text, &["a", "b"]).as_deref(), Some(wanted));
        }
        assert!(Patch::parse("no value").is_err());
        assert!(make("a = 1", &[Patch::parse("a.b=1").unwrap()]).is_err(), "a value is not a table");
        assert!(make("a = ", &[]).is_err());
        // A caller cannot switch memories on, either.
        let made = make("", &[Patch::parse("features.memories=true").unwrap()]).unwrap();
        assert_eq!(value(&made.text, &["features", "memories"]).as_deref(), Some("false"));
    }

    #[test]
    fn databases_and_files_beside_the_config() {
        let made = make("sqlite_home = \"/x\"\nmodel_instructions_file = \"a/./b.md\"\n", &[]).unwrap();
        assert!(!made.text.contains("sqlite_home") && made.dropped.len() == 1);
        assert_eq!(made.needs, [Need { path: "a/b.md".into(), strength: Strength::Must }]);
        assert!(make("model_instructions_file = \"/abs\"\n", &[]).unwrap().needs.is_empty());
        for bad in ["../x", "~bob/x", ""] {
            assert!(make(&format!("model_catalog_json = \"{bad}\"\n"), &[]).is_err(), "{bad}");
        }
    }
}
