//! The power goes at any moment of a commit: whatever part of what was not synced is on the disk then, the journal is the one
//! before or, once it is acknowledged, the one after.
//!
//! The calls of one commit are noted as they are made. For each prefix of them every folder is built that a crash may leave:
//! of what no sync covers, a file may have a name or none, all bytes, some or zeros, and a rename may have happened, have not,
//! have left both names, or have lost both. It is our own seam and not turmoil's file system: that one has its own types for
//! files, and neither file locks nor `syncfs`, on which the order of ours rests.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, SystemTime};

use super::*;
use crate::artifacts::faults::{Call, traced};

/// States built of one prefix; of a prefix with more, so many.
const EACH_MAX: usize = 4_096;
/// Of so many states one is cleaned as well, and the commit made in it: listing all folders takes its time.
const CLEANED: usize = 8;

/// What a file that was being written may hold.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
enum Bytes {
    None,
    Half,
    Zeros,
    All,
}

/// A folder after a crash: of the files of this commit, which name holds what of which file.
type Outcome = BTreeMap<PathBuf, (usize, Bytes)>;

/// One file of the commit: its bytes, and what of it is certain.
#[derive(Clone, Debug, Default)]
struct Written {
    path: PathBuf,
    bytes: Vec<u8>,
    has_bytes: bool,
    is_synced: bool,
    /// The first name, and then the last one, lasts.
    name_lasts: bool,
    moved_to: Option<PathBuf>,
    move_lasts: bool,
}

impl Written {
    /// What may be left of it: under which names, with what bytes.
    fn outcomes(&self) -> Vec<Vec<(PathBuf, Bytes)>> {
        let bytes = match (self.is_synced, self.has_bytes) {
            (true, _) => vec![Bytes::All],
            (false, true) => vec![Bytes::None, Bytes::Half, Bytes::Zeros, Bytes::All],
            (false, false) => vec![Bytes::None],
        };
        let first = || vec![self.path.clone()];
        let names = match &self.moved_to {
            // Nobody syncs the folder that it was moved out of.
            Some(to) if self.move_lasts => {
                vec![vec![to.clone()], vec![self.path.clone(), to.clone()]]
            }
            Some(to) => {
                vec![first(), vec![to.clone()], vec![self.path.clone(), to.clone()], vec![]]
            }
            None if self.name_lasts => vec![first()],
            None => vec![first(), vec![]],
        };
        let mut all = Vec::new();
        for names in names {
            if names.is_empty() {
                all.push(Vec::new());
                continue;
            }
            all.extend(bytes.iter().map(|b| names.iter().map(|name| (name.clone(), *b)).collect()));
        }
        all
    }
}

/// The files after these calls, and what of them is certain.
fn after(calls: &[Call], contents: &HashMap<PathBuf, Vec<u8>>) -> Vec<Written> {
    let mut files: Vec<Written> = Vec::new();
    for call in calls {
        let at = |path: &Path| files.iter().position(|file| file.path == path).unwrap();
        match call.what {
            "Create" => {
                let (path, bytes) = (call.path.clone(), contents[&call.path].clone());
                files.push(Written { path, bytes, ..Written::default() });
            }
            "Write" => {
                let at = at(&call.path);
                files[at].has_bytes = true;
            }
            "SyncFile" => {
                let at = at(&call.path);
                files[at].is_synced = true;
            }
            "Rename" => {
                let at = at(call.from.as_ref().unwrap());
                files[at].moved_to = Some(call.path.clone());
            }
            "SyncFolder" => {
                for file in &mut files {
                    let within = |path: &PathBuf| path.parent() == Some(&call.path);
                    file.name_lasts |= within(&file.path);
                    file.move_lasts |= file.moved_to.as_ref().is_some_and(within);
                }
            }
            "SyncAll" => {
                for file in &mut files {
                    (file.is_synced, file.name_lasts) = (true, true);
                    file.move_lasts = file.moved_to.is_some();
                }
            }
            other => panic!("a commit does {other}"),
        }
    }
    files
}

/// Every folder that may be left, or so many of them: the first, the last and those between at even distances.
fn outcomes(files: &[Written]) -> Vec<Outcome> {
    let choices: Vec<Vec<Vec<(PathBuf, Bytes)>>> = files.iter().map(Written::outcomes).collect();
    let total: usize = choices.iter().map(Vec::len).product();
    // Prime to the number of choices, so that all of each come up.
    let step = if total <= EACH_MAX { 1 } else { (total / EACH_MAX) | 1 };
    let one = |mut index: usize| {
        let mut outcome = Outcome::new();
        for (file, choices) in choices.iter().enumerate() {
            let chosen = &choices[index % choices.len()];
            index /= choices.len();
            outcome.extend(chosen.iter().map(|(path, bytes)| (path.clone(), (file, *bytes))));
        }
        outcome
    };
    (0..total).step_by(step).chain([total - 1]).map(one).collect()
}

/// A store as it was before a commit, and the commit's calls.
struct Scene {
    disk: Disk,
    before: String,
    after: String,
    row_after: StreamRow,
    calls: Vec<Call>,
    contents: HashMap<PathBuf, Vec<u8>>,
    delta: Delta,
}

/// All that a load gives, in words.
fn seen(disk: &Disk) -> Result<String, Error> {
    disk.read().map(|all| format!("{all:?}"))
}

impl Scene {
    /// So many commits lie behind; this one is the scene.
    fn new(commits: u8, delta: Delta) -> Self {
        let mut disk = Disk::in_memory();
        (1..=commits).for_each(|n| disk.commit(super::delta(n), 0));
        disk.artifacts.gc(&disk.needs(), Duration::ZERO, false).unwrap();
        let before = seen(&disk).unwrap();
        let start = disk.head.clone();
        let ((), calls) = traced(|| disk.commit(delta.clone(), 0));
        let (after, row_after) = (seen(&disk).unwrap(), disk.row());
        let mut contents = HashMap::new();
        for call in calls.iter().filter(|call| call.what == "Rename") {
            contents.insert(call.from.clone().unwrap(), fs::read(&call.path).unwrap());
            fs::remove_file(&call.path).unwrap();
        }
        disk.head = start;
        let scene = Self { disk, before, after, row_after, calls, contents, delta };
        assert_eq!(seen(&scene.disk).unwrap(), scene.before);
        scene
    }

    fn lay(&self, outcome: &Outcome, files: &[Written]) {
        let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_600_000_000);
        for (path, (file, bytes)) in outcome {
            let whole = &files[*file].bytes;
            let bytes = match bytes {
                Bytes::None => Vec::new(),
                Bytes::Half => whole[..whole.len() / 2].to_vec(),
                Bytes::Zeros => vec![0; whole.len()],
                Bytes::All => whole.clone(),
            };
            fs::write(path, bytes).unwrap();
            fs::File::options().write(true).open(path).unwrap().set_modified(old).unwrap();
        }
    }

    /// What a load under the row of the commit gives.
    fn moved(&self) -> Result<String, Error> {
        seen(&Disk { head: Some(self.head_after()?), ..self.disk.again() })
    }

    /// The pointer stands behind the commit: the cleaner takes what the commit has superseded, and nothing else.
    fn is_cleaned_and_stays(&self, outcome: &Outcome) {
        let disk = Disk { head: Some(self.head_after().unwrap()), ..self.disk.again() };
        let kept = disk.needs();
        let old: HashSet<Hash> = self.disk.needs().difference(&kept).copied().collect();
        let keep = kept.union(&old).copied().collect();
        disk.artifacts.gc(&keep, Duration::from_hours(1), false).unwrap();
        assert_eq!(self.moved().unwrap(), self.after, "cleaned: {outcome:?}");
    }

    fn head_after(&self) -> Result<(Hash, Head), Error> {
        let hash = self.row_after.head.unwrap();
        let artifacts = Artifacts::open(self.disk.folder.path())?;
        Ok((hash, head(&artifacts, &self.row_after)?.unwrap()))
    }

    /// The pointer stands before the commit: so does the journal, the cleaner takes nothing of it, and the commit can be made.
    fn is_as_before(&self, outcome: &Outcome, cleaned: bool) {
        let mut disk = self.disk.again();
        assert_eq!(seen(&disk).unwrap(), self.before, "{outcome:?}");
        if !cleaned {
            return;
        }
        disk.artifacts.gc(&disk.needs(), Duration::from_hours(1), false).unwrap();
        assert_eq!(seen(&disk).unwrap(), self.before, "cleaned: {outcome:?}");
        let left: Vec<&PathBuf> = outcome.keys().filter(|path| path.exists()).collect();
        assert!(left.is_empty(), "nobody needs them: {left:?}");
        self.lay(outcome, &after(&self.calls, &self.contents));
        disk.commit(self.delta.clone(), 0);
        assert_eq!(seen(&disk).unwrap(), self.after, "{outcome:?}");
    }

    fn clear(&self, outcome: &Outcome) {
        let targets = self.calls.iter().filter(|call| call.what == "Rename");
        for path in outcome.keys().chain(targets.map(|call| &call.path)) {
            drop(fs::remove_file(path));
        }
    }

    /// Every state that a crash within these calls may leave; how many there are.
    fn crash_everywhere(&self) -> usize {
        let mut known: HashSet<Outcome> = HashSet::new();
        for end in 0..=self.calls.len() {
            let files = after(&self.calls[..end], &self.contents);
            let acknowledged = end == self.calls.len();
            let outcomes = outcomes(&files);
            for outcome in outcomes {
                if !known.insert(outcome.clone()) && !acknowledged {
                    continue;
                }
                self.lay(&outcome, &files);
                match self.moved() {
                    Ok(seen) if acknowledged => {
                        assert_eq!(seen, self.after, "{outcome:?}");
                        self.is_cleaned_and_stays(&outcome);
                        self.lay(&outcome, &files);
                    }
                    Ok(seen) => assert_eq!(seen, self.after, "{outcome:?}"),
                    // The pointer cannot be there yet; on a disk that lies about a sync, damage is found.
                    Err(Error::Artifacts(_)) => assert!(!acknowledged, "{outcome:?}"),
                    Err(error) => panic!("{error}: {outcome:?}"),
                }
                self.is_as_before(&outcome, acknowledged || known.len().is_multiple_of(CLEANED));
                self.clear(&outcome);
            }
        }
        known.len()
    }
}

#[test]
fn power_lost_at_any_call_of_a_commit_leaves_the_journal_before_or_after_it() {
    // Four files: all states there are. The sixteenth commit merges all that was before it: some of them.
    let few = Delta { applied: Vec::new(), quarantined: Vec::new(), ..delta(2) };
    // Before the sync five ways a file may be, after it four, two of them among the five.
    let least = 5_usize.pow(4) + 4_usize.pow(4) - 2_usize.pow(4);
    for (commits, delta, least) in [(1, few, least), (15, delta(16), 4_usize.pow(6))] {
        let states = Scene::new(commits, delta).crash_everywhere();
        assert!(states >= least, "only {states} states of the commit behind {commits}");
    }
}

#[test]
fn without_a_sync_a_commit_would_be_acknowledged_that_a_crash_takes_back() {
    let scene = Scene::new(15, delta(16));
    for sync in ["SyncAll", "SyncFolder"] {
        let calls: Vec<Call> = scene.calls.iter().filter(|c| c.what != sync).cloned().collect();
        assert!(calls.len() < scene.calls.len(), "no {sync}");
        let files = after(&calls, &scene.contents);
        let mut refused = 0;
        for outcome in outcomes(&files).iter().step_by(17) {
            scene.lay(outcome, &files);
            refused += usize::from(scene.moved().is_err());
            scene.clear(outcome);
        }
        assert!(refused > 0, "the model does not see that {sync} is needed");
    }
}
