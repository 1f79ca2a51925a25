//! The budget: one limit, accounts by name, reservations that are given back on drop.

use crate::ledger::parts;
use crate::{Bytes, Entry, Ledger, OverBudget};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The owner of one memory limit, from which everything that holds memory reserves it.
///
/// Clones share the limit and the accounts. Reserving and giving back take a lock for a few additions and
/// allocate nothing, so both may happen while a step runs. A request that does not fit is refused only when what others
/// can do without ([`Spare`]) is not enough either.
///
/// ```
/// use plimsoll_budget::{Budget, Bytes};
/// let budget = Budget::new(Bytes::mib(100));
/// let arena = budget.account("arena").reserve(Bytes::mib(60))?;
/// assert_eq!(budget.left(), Some(Bytes::mib(40)));
/// drop(arena);
/// assert_eq!((budget.held(), budget.peak()), (Bytes::ZERO, Bytes::mib(60)));
/// # Ok::<(), plimsoll_budget::OverBudget>(())
/// ```
#[derive(Clone)]
pub struct Budget {
    state: Arc<Mutex<State>>,
}

struct State {
    limit: Option<Bytes>,
    /// The accounts as a tree; the first node is the whole budget, parents come before their children.
    nodes: Vec<Node>,
    spares: Vec<Weak<dyn Spare>>,
}

/// Memory that its holder can do without: kept because it was left over, given back as soon as somebody needs it.
pub trait Spare: Send + Sync {
    /// What could be given back now.
    fn bytes(&self) -> Bytes;

    /// Gives back so many bytes, more if it comes in larger pieces, or all there are. Called by whoever needs memory, on its
    /// thread, so a holder must not reserve anything while it keeps others from giving back.
    fn give_back(&self, bytes: Bytes);
}

struct Node {
    name: String,
    parent: usize,
    /// Held by this account and those below it.
    held: Bytes,
    peak: Bytes,
}

const ROOT: usize = 0;

impl Budget {
    /// A budget with this limit.
    pub fn new(limit: Bytes) -> Budget {
        Budget::with(Some(limit))
    }

    /// A budget that counts and never refuses.
    pub fn unlimited() -> Budget {
        Budget::with(None)
    }

    /// A budget with this limit, if there is one.
    pub fn with(limit: Option<Bytes>) -> Budget {
        let root = Node { name: String::new(), parent: ROOT, held: Bytes::ZERO, peak: Bytes::ZERO };
        Budget { state: Arc::new(Mutex::new(State { limit, nodes: vec![root], spares: Vec::new() })) }
    }

    /// The account of this name, opened if it is new; `/` separates levels, as in `pipeline/shuffle`.
    pub fn account(&self, name: &str) -> Account {
        let mut state = self.lock();
        let mut node = ROOT;
        for part in parts(name) {
            node = state.child(node, part);
        }
        Account { budget: self.clone(), node }
    }

    /// The limit, if there is one.
    pub fn limit(&self) -> Option<Bytes> {
        self.lock().limit
    }

    /// Sets another limit.
    ///
    /// What is reserved stays reserved, even above the new limit: only new requests are refused.
    pub fn set_limit(&self, limit: Option<Bytes>) {
        self.lock().limit = limit;
    }

    /// What all accounts hold together.
    pub fn held(&self) -> Bytes {
        self.lock().nodes[ROOT].held
    }

    /// The most that all accounts have held together at any one moment.
    pub fn peak(&self) -> Bytes {
        self.lock().nodes[ROOT].peak
    }

    /// What is left below the limit; `None` without a limit.
    pub fn left(&self) -> Option<Bytes> {
        let state = self.lock();
        state.limit.map(|limit| limit.saturating_sub(state.nodes[ROOT].held))
    }

    /// Makes known, for as long as it lives, that somebody holds memory that he can do without.
    ///
    /// ```
    /// use plimsoll_budget::{Budget, Bytes, Reservation, Spare};
    /// use std::sync::{Arc, Mutex};
    /// struct Cache(Mutex<Reservation>);
    /// impl Spare for Cache {
    ///     fn bytes(&self) -> Bytes {
    ///         self.0.lock().unwrap().bytes()
    ///     }
    ///     fn give_back(&self, bytes: Bytes) {
    ///         let mut held = self.0.lock().unwrap();
    ///         let bytes = bytes.min(held.bytes());
    ///         held.shrink(bytes);
    ///     }
    /// }
    /// let budget = Budget::new(Bytes::mib(100));
    /// let cache = Arc::new(Cache(Mutex::new(budget.account("cache").reserve(Bytes::mib(90))?)));
    /// budget.lend(&cache);
    /// let arena = budget.account("arena").reserve(Bytes::mib(60))?;
    /// assert_eq!(cache.bytes(), Bytes::mib(40));
    /// # Ok::<(), plimsoll_budget::OverBudget>(())
    /// ```
    pub fn lend<S: Spare + 'static>(&self, spare: &Arc<S>) {
        let spare: Arc<dyn Spare> = spare.clone();
        let mut state = self.lock();
        state.spares.retain(|known| known.strong_count() > 0);
        state.spares.push(Arc::downgrade(&spare));
    }

    /// What holders can do without.
    pub fn spare(&self) -> Bytes {
        self.spares().iter().map(|spare| spare.bytes()).sum()
    }

    /// What a request may have: what is left below the limit, and what holders can do without; `None` without a limit.
    pub fn available(&self) -> Option<Bytes> {
        self.left().map(|left| left + self.spare())
    }

    fn spares(&self) -> Vec<Arc<dyn Spare>> {
        // Dropping one may give memory back, which takes the lock.
        let state = self.lock();
        let spares = state.spares.iter().filter_map(Weak::upgrade).collect();
        drop(state);
        spares
    }

    /// Takes bytes for an account, if need be from those who can do without.
    fn take(&self, node: usize, bytes: Bytes) -> Result<(), OverBudget> {
        self.make_room(bytes);
        self.lock().take(node, bytes)
    }

    /// Has so many bytes left below the limit, or as many as there can be, if need be from those who can do without: for memory that is
    /// about to be used and that nobody reserves.
    pub fn make_room(&self, bytes: Bytes) {
        if self.missing(bytes) == Bytes::ZERO {
            return;
        }
        let mut spares = self.spares();
        spares.sort_by_key(|spare| std::cmp::Reverse(spare.bytes()));
        for spare in spares {
            match self.missing(bytes) {
                Bytes::ZERO => break,
                missing => spare.give_back(missing),
            }
        }
    }

    /// How much more than what is left is asked for.
    fn missing(&self, bytes: Bytes) -> Bytes {
        bytes.saturating_sub(self.lock().left())
    }

    /// Begins new peaks, everywhere, at what is held now.
    pub fn reset_peaks(&self) {
        for node in &mut self.lock().nodes {
            node.peak = node.held;
        }
    }

    /// Who holds how much at this moment.
    pub fn ledger(&self) -> Ledger {
        self.lock().ledger()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change under the lock is complete or not begun, so a panic elsewhere leaves it sound.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Budget").field(&self.ledger()).finish()
    }
}

impl State {
    fn child(&mut self, parent: usize, name: &str) -> usize {
        let known = |node: &Node| node.parent == parent && node.name == name;
        // The root has no name, so it is nobody's child.
        self.nodes.iter().position(known).unwrap_or_else(|| {
            self.nodes.push(Node { name: name.to_string(), parent, held: Bytes::ZERO, peak: Bytes::ZERO });
            self.nodes.len() - 1
        })
    }

    fn left(&self) -> Bytes {
        self.limit.unwrap_or(Bytes::MAX).saturating_sub(self.nodes[ROOT].held)
    }

    fn take(&mut self, node: usize, asked: Bytes) -> Result<(), OverBudget> {
        if asked > self.left() {
            let limit = self.limit.unwrap_or(Bytes::MAX);
            return Err(OverBudget { account: self.path(node), asked, limit, ledger: self.ledger() });
        }
        self.up_from(node, |node| {
            node.held += asked;
            node.peak = node.peak.max(node.held);
        });
        Ok(())
    }

    fn give_back(&mut self, node: usize, bytes: Bytes) {
        self.up_from(node, |node| node.held -= bytes);
    }

    /// Visits the account, those above it, and the root.
    fn up_from(&mut self, mut node: usize, mut visit: impl FnMut(&mut Node)) {
        loop {
            visit(&mut self.nodes[node]);
            if node == ROOT {
                return;
            }
            node = self.nodes[node].parent;
        }
    }

    fn path(&self, node: usize) -> String {
        let Node { name, parent, .. } = &self.nodes[node];
        if *parent == ROOT { name.clone() } else { format!("{}/{name}", self.path(*parent)) }
    }

    fn ledger(&self) -> Ledger {
        let Node { held, peak, .. } = self.nodes[ROOT];
        Ledger { limit: self.limit, held, peak, entries: self.entries(ROOT) }
    }

    fn entries(&self, parent: usize) -> Vec<Entry> {
        let below = |&(at, node): &(usize, &Node)| at != ROOT && node.parent == parent;
        let entry = |(at, node): (usize, &Node)| Entry {
            name: node.name.clone(),
            held: node.held,
            peak: node.peak,
            entries: self.entries(at),
        };
        self.nodes.iter().enumerate().filter(below).map(entry).collect()
    }
}

/// A name under which memory is reserved from a [`Budget`].
#[derive(Clone)]
pub struct Account {
    budget: Budget,
    node: usize,
}

impl Account {
    /// Reserves this many bytes.
    ///
    /// # Errors
    /// When fewer are left below the limit; the error says who holds them.
    pub fn reserve(&self, bytes: Bytes) -> Result<Reservation, OverBudget> {
        self.budget.take(self.node, bytes)?;
        Ok(Reservation { account: self.clone(), bytes })
    }

    /// Sets what this account holds to a measured figure: memory that nobody reserved, such as that of the program itself.
    ///
    /// It is a fact, so it is never refused, even above the limit; only later requests are. For accounts without
    /// reservations.
    ///
    /// ```
    /// use plimsoll_budget::{Budget, Bytes};
    /// let budget = Budget::new(Bytes::mib(100));
    /// budget.account("process").note(Bytes::mib(30));
    /// assert_eq!(budget.left(), Some(Bytes::mib(70)));
    /// budget.account("process").note(Bytes::mib(20));
    /// assert_eq!(budget.left(), Some(Bytes::mib(80)));
    /// ```
    pub fn note(&self, bytes: Bytes) {
        let mut state = self.budget.lock();
        let before = state.nodes[self.node].held;
        state.up_from(self.node, |node| {
            node.held = node.held - before + bytes;
            node.peak = node.peak.max(node.held);
        });
    }

    /// Reserves as much as is left, up to `most`, but no less than `least`.
    ///
    /// For what works better with more, such as caches and prefetch buffers.
    ///
    /// ```
    /// use plimsoll_budget::{Budget, Bytes};
    /// let budget = Budget::new(Bytes::mib(100));
    /// let cache = budget.account("cache").reserve_between(Bytes::mib(1), Bytes::gib(1))?;
    /// assert_eq!(cache.bytes(), Bytes::mib(100));
    /// # Ok::<(), plimsoll_budget::OverBudget>(())
    /// ```
    ///
    /// # Errors
    /// When fewer than `least` bytes are left below the limit.
    pub fn reserve_between(&self, least: Bytes, most: Bytes) -> Result<Reservation, OverBudget> {
        let mut state = self.budget.lock();
        let bytes = state.left().min(most).max(least);
        if bytes > least {
            state.take(self.node, bytes)?;
        } else {
            drop(state);
            self.budget.take(self.node, bytes)?;
        }
        Ok(Reservation { account: self.clone(), bytes })
    }

    /// The account of this name below this one.
    pub fn account(&self, name: &str) -> Account {
        self.budget.account(&format!("{}/{name}", self.name()))
    }

    /// The account's whole name.
    pub fn name(&self) -> String {
        self.budget.lock().path(self.node)
    }

    /// What this account and those below it hold.
    pub fn held(&self) -> Bytes {
        self.budget.lock().nodes[self.node].held
    }

    /// The most that this account and those below it have held together at any one moment.
    pub fn peak(&self) -> Bytes {
        self.budget.lock().nodes[self.node].peak
    }

    /// Whether another account belongs to the same budget.
    pub fn is_beside(&self, other: &Account) -> bool {
        Arc::ptr_eq(&self.budget.state, &other.budget.state)
    }

    /// The budget that the account belongs to.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }
}

/// Whether it is the same name in the same budget.
impl PartialEq for Account {
    fn eq(&self, other: &Account) -> bool {
        self.is_beside(other) && self.node == other.node
    }
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Account").field("name", &self.name()).field("held", &self.held()).finish()
    }
}

/// Bytes taken from a [`Budget`] in the name of an [`Account`], given back on drop.
///
/// ```
/// use plimsoll_budget::{Budget, Bytes};
/// let budget = Budget::new(Bytes(100));
/// let mut whole = budget.account("cache").reserve(Bytes(60))?;
/// let part = whole.split(Bytes(20));
/// whole.grow(Bytes(40))?;
/// assert_eq!((whole.bytes(), part.bytes(), budget.held()), (Bytes(80), Bytes(20), Bytes(100)));
/// assert!(whole.grow(Bytes(1)).is_err());
/// drop(part);
/// whole.shrink(Bytes(30));
/// assert_eq!(budget.held(), Bytes(50));
/// # Ok::<(), plimsoll_budget::OverBudget>(())
/// ```
pub struct Reservation {
    account: Account,
    bytes: Bytes,
}

impl Reservation {
    /// The bytes held.
    pub fn bytes(&self) -> Bytes {
        self.bytes
    }

    /// The account in whose name they are held.
    pub fn account(&self) -> &Account {
        &self.account
    }

    /// Takes `by` more bytes.
    ///
    /// # Errors
    /// When fewer are left below the limit; the reservation stays as it was.
    pub fn grow(&mut self, by: Bytes) -> Result<(), OverBudget> {
        self.account.budget.take(self.account.node, by)?;
        self.bytes += by;
        Ok(())
    }

    /// Takes `by` more bytes if at least `rest` are left then, and says whether it did: for what is held only while nobody
    /// needs it, so nobody is asked to give back for it.
    pub fn grow_leaving(&mut self, by: Bytes, rest: Bytes) -> bool {
        let mut state = self.account.budget.lock();
        let taken = by.0.checked_add(rest.0).is_some_and(|sum| sum <= state.left().0)
            && state.take(self.account.node, by).is_ok();
        if taken {
            self.bytes += by;
        }
        taken
    }

    /// Gives `by` bytes back.
    ///
    /// # Panics
    /// When fewer are held.
    #[track_caller]
    pub fn shrink(&mut self, by: Bytes) {
        drop(self.split(by));
    }

    /// Grows or shrinks to exactly `to` bytes.
    ///
    /// # Errors
    /// When it would grow by more than is left below the limit; the reservation stays as it was.
    pub fn resize(&mut self, to: Bytes) -> Result<(), OverBudget> {
        if to >= self.bytes {
            return self.grow(to - self.bytes);
        }
        self.shrink(self.bytes - to);
        Ok(())
    }

    /// Parts with `bytes` of the bytes held, as a reservation of their own in the same account.
    ///
    /// # Panics
    /// When fewer are held.
    #[track_caller]
    pub fn split(&mut self, bytes: Bytes) -> Reservation {
        assert!(bytes <= self.bytes, "{bytes} cannot be split from a reservation of {}", self.bytes);
        self.bytes -= bytes;
        Reservation { account: self.account.clone(), bytes }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.account.budget.lock().give_back(self.account.node, self.bytes);
    }
}

impl fmt::Debug for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation").field("account", &self.account.name()).field("bytes", &self.bytes).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_peaks_at_what_its_accounts_held_together() {
        let budget = Budget::unlimited();
        let (shuffle, prefetch) = (budget.account("pipeline/shuffle"), budget.account("pipeline/prefetch"));
        let first = shuffle.reserve(Bytes(30)).unwrap();
        drop(first);
        let second = prefetch.reserve(Bytes(20)).unwrap();
        let third = shuffle.reserve(Bytes(5)).unwrap();
        let ledger = budget.ledger();
        let figures = |name| ledger.get(name).map(|entry| (entry.held.0, entry.peak.0));
        assert_eq!(figures("pipeline/shuffle"), Some((5, 30)));
        assert_eq!(figures("pipeline/prefetch"), Some((20, 20)));
        assert_eq!(figures("pipeline"), Some((25, 30)));
        assert_eq!(figures("pipeline/cache"), None);
        assert_eq!((ledger.held.0, ledger.peak.0, ledger.limit), (25, 30, None));
        drop((second, third));
        assert_eq!(budget.held(), Bytes::ZERO);
        budget.reset_peaks();
        assert_eq!(budget.peak(), Bytes::ZERO);
    }

    #[test]
    fn refuses_past_the_limit_with_the_whole_ledger() {
        let budget = Budget::new(Bytes::mib(100));
        let names = ["arena", "runtime", "log", "cache", "stacks", "python"];
        let sizes = [60, 10, 1, 5, 2, 8];
        let held: Vec<_> =
            names.iter().zip(sizes).map(|(name, mib)| budget.account(name).reserve(Bytes::mib(mib)).unwrap()).collect();
        let error = budget.account("pipeline/shuffle").reserve(Bytes::mib(15)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "pipeline/shuffle asked for 15 MiB, but only 14 MiB of 100 MiB are left (arena holds 60 MiB, \
             runtime holds 10 MiB, python holds 8 MiB, cache holds 5 MiB, 2 others hold 3 MiB)"
        );
        assert_eq!(error.ledger.held, Bytes::mib(86));
        assert_eq!(error.left(), Bytes::mib(14));
        assert_eq!(budget.account("pipeline").peak(), Bytes::ZERO);
        drop(held);
        assert!(budget.account("pipeline/shuffle").reserve(Bytes::mib(100)).is_ok());
        let alone = budget.account("pipeline").reserve(Bytes::mib(101)).unwrap_err();
        assert_eq!(alone.to_string(), "pipeline asked for 101 MiB, but only 100 MiB of 100 MiB are left");
    }

    #[test]
    fn the_ledger_prints_as_a_tree() {
        let budget = Budget::new(Bytes::gib(1));
        let _arena = budget.account("arena").reserve(Bytes::mib(600)).unwrap();
        let _shuffle = budget.account("pipeline/shuffle").reserve(Bytes(1_500_000)).unwrap();
        let expected = "\
account                                 held        peak
arena                                600 MiB     600 MiB
pipeline                             1.4 MiB     1.4 MiB
  shuffle                            1.4 MiB     1.4 MiB
all                                601.4 MiB   601.4 MiB   limit 1 GiB";
        assert_eq!(budget.ledger().to_string(), expected);
    }

    #[test]
    fn names_lead_to_one_account() {
        let budget = Budget::unlimited();
        let account = budget.account("pipeline").account("shuffle");
        assert_eq!(account.name(), "pipeline/shuffle");
        let _held = budget.account("/pipeline//shuffle/").reserve(Bytes(7)).unwrap();
        assert_eq!(account.held(), Bytes(7));
        // The same last part under another parent is another account.
        assert_eq!(budget.account("shuffle").held(), Bytes::ZERO);
        assert_eq!(budget.ledger().entries.len(), 2);
    }

    #[test]
    fn reserve_between_takes_what_is_left() {
        let budget = Budget::new(Bytes(100));
        let account = budget.account("cache");
        let most = account.reserve_between(Bytes(10), Bytes(70)).unwrap();
        assert_eq!(most.bytes(), Bytes(70));
        let rest = account.reserve_between(Bytes(10), Bytes(70)).unwrap();
        assert_eq!(rest.bytes(), Bytes(30));
        assert_eq!(account.reserve_between(Bytes(10), Bytes(70)).unwrap_err().asked, Bytes(10));
        assert!(account.reserve_between(Bytes(0), Bytes(70)).unwrap().bytes() == Bytes::ZERO);
    }

    /// Gives back in pieces of 8 bytes.
    struct Pieces(Mutex<Reservation>);

    impl Spare for Pieces {
        fn bytes(&self) -> Bytes {
            self.0.lock().unwrap().bytes()
        }

        fn give_back(&self, bytes: Bytes) {
            let mut held = self.0.lock().unwrap();
            let bytes = Bytes(bytes.0.next_multiple_of(8)).min(held.bytes());
            held.shrink(bytes);
        }
    }

    #[test]
    fn what_is_spare_is_given_back_before_a_request_is_refused() {
        let budget = Budget::new(Bytes(100));
        let spare = |name: &str, bytes: u64| {
            let mut held = budget.account(name).reserve(Bytes::ZERO).unwrap();
            assert!(held.grow_leaving(Bytes(bytes), Bytes::ZERO));
            let pieces = Arc::new(Pieces(Mutex::new(held)));
            budget.lend(&pieces);
            pieces
        };
        let (small, large) = (spare("small", 16), spare("large", 64));
        assert_eq!((budget.left(), budget.available()), (Some(Bytes(20)), Some(Bytes(100))));
        // The largest is asked first, for what is missing only.
        let mut first = budget.account("arena").reserve(Bytes(30)).unwrap();
        assert_eq!((small.bytes().0, large.bytes().0), (16, 48));
        first.grow(Bytes(40)).unwrap();
        assert_eq!((small.bytes().0, large.bytes().0, first.bytes().0), (16, 8, 70));
        let error = budget.account("arena").reserve(Bytes(31)).unwrap_err();
        assert_eq!((error.left().0, budget.spare().0), (30, 0));
        // What is spare never pushes others out.
        let mut third = budget.account("third").reserve(Bytes::ZERO).unwrap();
        assert!(!third.grow_leaving(Bytes(20), Bytes(11)));
        assert!(third.grow_leaving(Bytes(20), Bytes(10)));
        assert!(!third.grow_leaving(Bytes(1), Bytes::MAX));
        drop(large);
        assert_eq!(budget.spares().len(), 1);
    }

    #[test]
    fn a_lowered_limit_leaves_what_is_held() {
        let budget = Budget::new(Bytes(100));
        let mut held = budget.account("arena").reserve(Bytes(80)).unwrap();
        budget.set_limit(Some(Bytes(50)));
        assert_eq!(budget.left(), Some(Bytes::ZERO));
        assert!(held.grow(Bytes(1)).is_err());
        held.resize(Bytes(30)).unwrap();
        held.resize(Bytes(50)).unwrap();
        assert!(held.resize(Bytes(51)).is_err());
        assert_eq!(held.bytes(), Bytes(50));
        budget.set_limit(None);
        held.resize(Bytes(51)).unwrap();
    }

    #[test]
    #[should_panic(expected = "2 B cannot be split from a reservation of 1 B")]
    fn no_more_can_be_split_than_is_held() {
        Budget::unlimited().account("arena").reserve(Bytes(1)).unwrap().split(Bytes(2));
    }

    #[test]
    fn threads_never_hold_more_than_the_limit() {
        let budget = Budget::new(Bytes(1000));
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let account = budget.account(&format!("worker/{thread}"));
                scope.spawn(move || {
                    let mut held = Vec::new();
                    for round in 0..2000u64 {
                        match account.reserve(Bytes(1 + (round * 37 + thread * 11) % 200)) {
                            Ok(reservation) => held.push(reservation),
                            Err(error) => {
                                assert!(error.ledger.held <= Bytes(1000));
                                held.truncate(held.len() / 2);
                            }
                        }
                    }
                });
            }
        });
        assert_eq!(budget.held(), Bytes::ZERO);
        assert!(budget.peak() <= Bytes(1000));
        assert!(budget.ledger().entries[0].entries.iter().all(|entry| entry.held == Bytes::ZERO));
    }
}
