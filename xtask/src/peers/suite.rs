//! What is measured on a home.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::codex::{AppServer, Codex};
use crate::manifest::Entry;
use crate::peers::Terms;
use crate::peers::checks;
use crate::peers::measure::{Group, Noise, Role, Variant, WarmUp, Work, measure};
use crate::peers::report::Section;
use crate::peers::twin::Twin;
use crate::threadkeep::Threadkeep;

const WALK: &str = "find sessions archived_sessions -type f -printf '%s%T@%i' > /dev/null";
const NEWEST_HEADS: &str = "find sessions archived_sessions -type f -printf '%T@ %p\\n' | sort -rn | head -n 50 \
                            | cut -d' ' -f2- | xargs head -qc 32768 > /dev/null";
const ALL_HEADS: &str = "find sessions archived_sessions -type f -print0 | xargs -0 head -qc 32768 > /dev/null";

/// A cold start of Codex takes two minutes at 50,000 threads.
const COLD_RUNS: usize = 3;

pub struct Suite<'a> {
    pub home: &'a Path,
    pub name: &'a str,
    pub manifest: &'a [Entry],
    pub threadkeep: &'a Threadkeep,
    pub codex: Option<&'a Codex>,
    /// An own directory on disk, for indexes and the home that Codex opens.
    pub scratch: &'a Path,
    pub runs: usize,
}

/// Where threadkeep may keep its index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Index {
    /// Nowhere.
    None,
    /// In a directory that is empty at each start.
    Begun,
    /// Where the one before began.
    Again,
    /// In the same directory for all, filled before.
    Filled,
}

impl Suite<'_> {
    pub fn run(&self, noise: &mut Noise) -> Result<Vec<Section>> {
        let terms = self.terms()?;
        self.progress("checking the answers");
        self.check(&terms, Index::None)?;
        let indexed = self.fill_index()?;
        if indexed {
            self.check(&terms, Index::Filled).context("with an index")?;
        } else {
            self.progress("there is no index; the rows that need one are left out");
        }

        let mut sections = Vec::new();
        let peer = self.codex.map(|codex| self.start_codex(codex, noise, &mut sections)).transpose()?;
        let server = peer.as_ref().map(|(server, _twin)| server);
        for group in self.groups(&terms, indexed, server)? {
            self.progress(&group.title);
            let rows = measure(&group, self.runs, WarmUp::Each, noise)?;
            sections.push(Section { home: self.name.to_owned(), title: group.title, rows });
        }
        Ok(sections)
    }

    fn progress(&self, what: &str) {
        eprintln!("{}: {what}", self.name);
    }

    fn terms(&self) -> Result<Terms> {
        let listed: Vec<&Entry> = self.manifest.iter().filter(|e| e.listed_by_default()).collect();
        ensure!(!listed.is_empty(), "the manifest has no thread that a list would show");
        let mut cwds: HashMap<&str, usize> = HashMap::new();
        listed.iter().for_each(|e| *cwds.entry(&e.cwd).or_default() += 1);
        let rare_cwd = cwds.into_iter().min_by_key(|(cwd, n)| (*n, *cwd)).map_or("", |(cwd, _)| cwd).to_owned();
        Ok(Terms { rare: listed[listed.len() / 3].needle.clone(), rare_cwd })
    }

    fn check(&self, terms: &Terms, index: Index) -> Result<()> {
        let ask = |args: &[&str], code: i32| -> Result<Value> {
            self.threadkeep.json(self.threadkeep_command(args, index)?, &[code])
        };
        checks::all(self.home, self.manifest, terms, &ask)
    }

    fn index_dir(&self, index: Index) -> PathBuf {
        self.scratch.join(match index {
            Index::None | Index::Begun | Index::Again => format!("{}-index-empty", self.name),
            Index::Filled => format!("{}-index", self.name),
        })
    }

    fn threadkeep_command(&self, args: &[&str], index: Index) -> Result<Command> {
        let mut command = self.threadkeep.on(self.home, args);
        if index == Index::None {
            command.env("THREADKEEP_NO_INDEX", "1");
            return Ok(command);
        }
        let dir = self.index_dir(index);
        if index == Index::Begun && dir.exists() {
            fs::remove_dir_all(&dir).with_context(|| format!("cannot empty {}", dir.display()))?;
        }
        fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        command.env("THREADKEEP_INDEX_DIR", dir);
        Ok(command)
    }

    /// Builds the index; whether there is one then.
    fn fill_index(&self) -> Result<bool> {
        let run = |args: &[&str]| self.threadkeep.json(self.threadkeep_command(args, Index::Filled)?, &[0]);
        run(&["reindex"])?;
        // The first list remembers the folders.
        run(&["list"])?;
        Ok(run(&["list"])?["index"]["state"] == "fresh")
    }

    /// All pages, one command after the other, until there is no more. Every thread once.
    fn walk_pages(&self) -> Result<Duration> {
        let began = Instant::now();
        let mut seen = HashSet::new();
        let mut cursor: Option<String> = None;
        loop {
            let mut args = vec!["list", "--include", "exec,subagents,empty", "--limit", "10000"];
            if let Some(cursor) = &cursor {
                args.extend(["--cursor", cursor]);
            }
            let page = self.threadkeep.json(self.threadkeep_command(&args, Index::Filled)?, &[0])?;
            for thread in page["threads"].as_array().context("a page has threads")? {
                ensure!(seen.insert(thread["id"].as_str().unwrap_or_default().to_owned()), "a thread came twice");
            }
            cursor = page["next_cursor"].as_str().map(str::to_owned);
            if cursor.is_none() {
                break;
            }
        }
        let took = began.elapsed();
        let wanted = self.manifest.iter().filter(|e| !e.archived).count();
        ensure!(seen.len() == wanted, "{} of {wanted} threads were walked", seen.len());
        Ok(took)
    }

    /// How long it takes until the first page is printed, while the index is being begun behind it.
    fn first_byte(&self) -> Result<Duration> {
        let mut command = self.threadkeep_command(&["list"], Index::Begun)?;
        let began = Instant::now();
        let mut child = command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::null()).spawn()?;
        let mut page = Vec::new();
        child.stdout.take().context("a pipe")?.read_to_end(&mut page)?;
        let took = began.elapsed();
        child.wait()?;
        let page: Value = serde_json::from_slice(&page)?;
        ensure!(page["threads"].as_array().is_some_and(|t| !t.is_empty()), "a page without threads");
        Ok(took)
    }

    /// Lists, each beginning with nothing, until the index knows every thread: what a first use costs in all.
    fn first_use(&self) -> Result<Duration> {
        let mut total = Duration::ZERO;
        for n in 0..50 {
            let index = if n == 0 { Index::Begun } else { Index::Again };
            let command = self.threadkeep_command(&["list"], index)?;
            let began = Instant::now();
            let page = self.threadkeep.json(command, &[0])?;
            if page["index"]["state"] == "fresh" {
                return Ok(total);
            }
            total += began.elapsed();
        }
        anyhow::bail!("the index is never finished")
    }

    /// Measures its cold start, and leaves a server that is warm. The twin must outlive the server.
    fn start_codex(
        &self,
        codex: &Codex,
        noise: &mut Noise,
        sections: &mut Vec<Section>,
    ) -> Result<(RefCell<AppServer>, Twin)> {
        self.progress("a home for Codex");
        let twin = Twin::make(self.home, self.scratch.join(format!("{}-codex", self.name)))?;
        let cold = || {
            twin.remove_databases()?;
            let mut server = AppServer::start(codex, &twin.home)?;
            server.request("thread/list", json!({"limit": 50}))?;
            Ok(server.spawned().elapsed())
        };
        let group = Group {
            title: "first list of a home never seen".to_owned(),
            variants: vec![
                Variant {
                    role: Role::Reference,
                    name: format!("codex {} app-server: cold start, thread/list", codex.version),
                    short: "Codex, cold",
                    work: Work::Timed(Box::new(cold)),
                },
                self.subject(&["list"], Index::None),
            ],
        };
        self.progress(&group.title);
        let rows = measure(&group, self.runs.min(COLD_RUNS), WarmUp::No, noise)?;
        drop(group);
        sections.push(Section {
            home: self.name.to_owned(),
            title: "first list of a home never seen".to_owned(),
            rows,
        });
        let server = AppServer::start(codex, &twin.home)?;
        Ok((RefCell::new(server), twin))
    }

    fn groups<'a>(
        &'a self,
        terms: &'a Terms,
        indexed: bool,
        server: Option<&'a RefCell<AppServer>>,
    ) -> Result<Vec<Group<'a>>> {
        let walk = || self.shell("find -printf", WALK);
        let listing = || server.map(|server| Self::request(server, "thread/list", json!({"limit": 50})));
        let mut first_page = vec![walk(), self.shell("newest heads", NEWEST_HEADS)];
        first_page.extend(listing());
        first_page.push(self.subject(&["list"], Index::None));
        let mut groups = vec![
            Group { title: "first page, no index".to_owned(), variants: first_page },
            Group {
                title: "first page, exact, no index".to_owned(),
                variants: vec![self.shell("all heads", ALL_HEADS), self.subject(&["list", "--exact"], Index::None)],
            },
        ];
        let searches: [(&str, &'a str, &[&'a str]); 4] = [
            ("a rare word", &terms.rare, &[]),
            ("a word in 1 % of the threads", Terms::ONE_PERCENT, &["--limit", "1000"]),
            ("a common word, first page", Terms::COMMON, &[]),
            ("two absent characters", Terms::ABSENT, &[]),
        ];
        for (what, term, more) in searches {
            let mut variants = vec![self.rg(term)];
            variants.extend(server.map(|server| {
                let limit = if more.is_empty() { 20 } else { 100 };
                Self::request(server, "thread/search", json!({"searchTerm": term, "limit": limit}))
            }));
            let args: Vec<&'a str> = ["search", term].iter().chain(more).copied().collect();
            variants.push(self.subject(&args, Index::None));
            if indexed {
                variants.push(self.subject(&args, Index::Filled));
            }
            groups.push(Group { title: format!("search, {what}"), variants });
        }
        if indexed {
            let mut later = vec![walk()];
            later.extend(listing());
            later.push(self.subject(&["list"], Index::Filled));
            groups.push(Group { title: "later list, with an index".to_owned(), variants: later });
            let rare: &'a str = terms.rare_cwd.as_str();
            for (what, args) in [
                ("a rare directory", vec!["list", "--cwd", rare]),
                ("oldest first, everything", vec!["list", "--all", "--asc"]),
                ("text of previews", vec!["list", "--match", terms.rare.as_str()]),
            ] {
                let variants = vec![walk(), self.subject(&args, Index::Filled)];
                groups.push(Group { title: format!("later list, {what}, with an index"), variants });
            }
            let timed = |name: &str, work: Box<dyn Fn() -> Result<Duration> + 'a>| Variant {
                role: Role::Subject,
                name: name.to_owned(),
                short: "threadkeep",
                work: Work::Timed(work),
            };
            groups.push(Group {
                title: "walk of all pages that are not archived".to_owned(),
                variants: vec![
                    walk(),
                    timed("threadkeep list --limit 10000, page after page", Box::new(|| self.walk_pages())),
                ],
            });
            groups.push(Group {
                title: "first page while the index is begun".to_owned(),
                variants: vec![walk(), timed("threadkeep list: until the page is out", Box::new(|| self.first_byte()))],
            });
            groups.push(Group {
                title: "metadata of all threads into the index".to_owned(),
                variants: vec![
                    self.shell("all heads", ALL_HEADS),
                    timed("threadkeep list, again until it is fresh", Box::new(|| self.first_use())),
                ],
            });
            groups.push(Group {
                title: "everything into the index, text too".to_owned(),
                variants: vec![self.rg(&terms.rare), self.subject(&["reindex"], Index::Begun)],
            });
        }
        Ok(groups)
    }

    fn subject<'a>(&'a self, args: &[&'a str], index: Index) -> Variant<'a> {
        let note = match index {
            Index::None => "",
            Index::Filled => " (index)",
            Index::Begun | Index::Again => " (index begun)",
        };
        let args = args.to_vec();
        Variant {
            role: Role::Subject,
            name: format!("threadkeep {} --json{note}", args.join(" ")),
            short: "threadkeep",
            work: Work::Process(Box::new(move || self.threadkeep_command(&args, index))),
        }
    }

    fn shell(&self, short: &'static str, script: &'static str) -> Variant<'_> {
        Variant {
            role: Role::Reference,
            name: script.trim_end_matches(" > /dev/null").to_owned(),
            short,
            work: Work::Shell { home: self.home, script },
        }
    }

    fn rg<'a>(&'a self, term: &'a str) -> Variant<'a> {
        // The homes may lie in a directory that git ignores.
        let args = ["--no-config", "--no-ignore", "-l", "-i", "-F", term, "sessions", "archived_sessions"];
        Variant {
            role: Role::Reference,
            name: format!("rg -l -i -F {term}"),
            short: "rg",
            work: Work::Process(Box::new(move || {
                let mut rg = Command::new("rg");
                rg.args(args).current_dir(self.home);
                Ok(rg)
            })),
        }
    }

    fn request<'a>(server: &'a RefCell<AppServer>, method: &'static str, params: Value) -> Variant<'a> {
        Variant {
            role: Role::Reference,
            name: format!("{method} {params}"),
            short: "Codex",
            work: Work::Request { server, method, params },
        }
    }
}
