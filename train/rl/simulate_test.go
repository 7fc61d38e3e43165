//go:build linux

package rl_test

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"onering/data"
	"onering/internal/files"
	"onering/models"
	"onering/policy"
	"onering/reward"
	"onering/runtime"
	"onering/runtime/runtimetest"
	"onering/train"
	"onering/train/ranks"
	"onering/train/rl"
)

// The simulator trains tiny runs of one to three ranks in this process, and gives each the
// faults of its seed: a rank dies, the power fails and takes what was not synced, the disk
// is full, a grader hangs until the user stops the run, the clock jumps. Then the run is
// resumed, perhaps into the next fault, until it comes to its end. Whatever happened, it
// then has the files of a run that was never stopped; a run that stopped in order has lost
// no step, and one that did not has every checkpoint that it said was saved.

const (
	// seedVariable makes TestSimulated try only this seed, and print its actions.
	seedVariable = "ONERING_SIMULATE_SEED"
	// seedsVariable is which seeds TestSimulated tries, FROM:TO.
	seedsVariable = "ONERING_SIMULATE_SEEDS"
	// patience is how long a run may take that waits for no fault.
	patience = time.Minute
)

var (
	errDead  = errors.New("simulated: this process is dead")
	errPower = errors.New("simulated: the power has failed")
)

// A fault happens at an operation that is counted among those of one kind, so that other
// goroutines hardly shift the moment.
type fault struct {
	what  string // one of dies, power, full, hangs, clock
	rank  int    // the rank that dies, or whose grader hangs
	where string // file operations that count: "saves" (those below checkpoints/) or "others"
	at    int
	all   bool // for full: the rescue's disk is full too
	stops int  // for hangs: the rank that the user stops
}

func (f fault) String() string {
	return fmt.Sprintf("%s(rank %d, %s %d, all %v, stops %d)", f.what, f.rank, f.where, f.at, f.all, f.stops)
}

// drawFault draws a fault of a run of n ranks.
func drawFault(r *rand.Rand, n int) fault {
	f := fault{what: []string{"dies", "power", "power", "full", "hangs", "clock"}[r.IntN(6)], rank: r.IntN(n), stops: r.IntN(n), all: r.IntN(3) == 0}
	f.where = []string{"saves", "others"}[r.IntN(2)]
	most := map[string]int{"saves": 180, "others": 40}[f.where]
	switch {
	case f.what == "hangs":
		most = 4
	case f.what == "clock":
		most = 12
	case f.what == "dies" && n > 1 && f.rank+r.IntN(2) > 0:
		f.where, most = "exchanges", 60
	case f.what == "dies":
		f.rank = 0 // only the first writes
	}
	f.at = 1 + r.IntN(most)
	return f
}

// A machine is the simulated surroundings of a run's ranks: disk, clock, graders.
type machine struct {
	dir    string
	seed   uint64
	faults []fault
	stop   []func()     // the user stops a rank
	say    func(...any) // receives the log of the first rank; may be nil

	mu       sync.Mutex
	disk     disk
	counts   map[string]int
	happened []string
	dead     map[int]error // the ranks; rank 0 is the one that writes
	full     bool
	fullAll  bool
	jump     atomic.Int64
	saved    atomic.Int64 // the newest step that the log called saved
	resumed  atomic.Int64 // the step from which the run continued; -1 if it began
}

// begin prepares the machine for the next attempt.
func (m *machine) begin(faults []fault, n int) {
	m.faults, m.counts, m.happened, m.dead, m.full, m.fullAll = faults, map[string]int{}, nil, map[int]error{}, false, false
	m.stop = make([]func(), n)
	m.disk = disk{}
	m.disk.scan(filepath.Dir(m.dir))
	m.resumed.Store(-1)
}

// happens counts an operation, and returns the faults that are due.
func (m *machine) happens(count string, due func(f fault) bool) (now []fault) {
	m.counts[count]++
	for _, f := range m.faults {
		if due(f) && m.counts[count] == f.at {
			m.happened = append(m.happened, f.String())
			now = append(now, f)
		}
	}
	return now
}

// operation is files.Fault of the run's files.
func (m *machine) operation(op, path string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	inside := strings.HasPrefix(path, m.dir)
	where := "others"
	if strings.Contains(path, "/checkpoints") {
		where = "saves"
	}
	for _, f := range m.happens(where, func(f fault) bool {
		return f.where == where && (f.what == "dies" || f.what == "power" || f.what == "full")
	}) {
		m.strike(f)
	}
	if err := m.dead[0]; err != nil {
		return err
	}
	if m.full && inside || m.fullAll {
		return syscall.ENOSPC
	}
	if op == "sync" {
		m.disk.sync(path)
	}
	return nil
}

// strike causes a fault of the first rank, or of its disk.
func (m *machine) strike(f fault) {
	switch {
	case m.dead[0] != nil:
	case f.what == "full":
		m.full, m.fullAll = true, f.all
	case f.what == "dies": // Data that the system holds survives.
		now := disk{}
		now.scan(filepath.Dir(m.dir))
		m.disk, m.dead[0] = now, errDead
	case f.what == "power":
		m.disk.tear(filepath.Dir(m.dir), m.seed+uint64(f.at))
		m.dead[0] = errPower
	}
}

// A disk is the content of files after a power failure: the synced content of each file
// and folder, by the file system's number.
type disk struct {
	files   map[uint64][]byte
	folders map[uint64]map[string]uint64
}

func numberOf(path string) (n uint64, folder, ok bool) {
	info, err := os.Lstat(path)
	if err != nil {
		return 0, false, false
	}
	return info.Sys().(*syscall.Stat_t).Ino, info.IsDir(), true
}

// sync records the present content of a file or folder as synced.
func (d *disk) sync(path string) {
	if d.files == nil {
		d.files, d.folders = map[uint64][]byte{}, map[uint64]map[string]uint64{}
	}
	n, folder, ok := numberOf(path)
	switch {
	case !ok:
	case folder:
		d.folders[n] = entriesOf(path)
		for name, below := range d.folders[n] {
			if _, folder, _ := numberOf(filepath.Join(path, name)); folder && d.folders[below] == nil {
				d.folders[below] = map[string]uint64{}
			}
		}
	default:
		d.files[n], _ = os.ReadFile(path)
	}
}

func entriesOf(path string) map[string]uint64 {
	names := map[string]uint64{}
	entries, _ := os.ReadDir(path)
	for _, e := range entries {
		if n, _, ok := numberOf(filepath.Join(path, e.Name())); ok {
			names[e.Name()] = n
		}
	}
	return names
}

// scan records everything below a folder as synced.
func (d *disk) scan(path string) {
	d.sync(path)
	for name := range entriesOf(path) {
		d.scan(filepath.Join(path, name))
	}
}

// tear decides by the seed which unsynced data the disk keeps: none; names with parts of
// files; or a separate choice for each folder and file.
func (d *disk) tear(root string, seed uint64) {
	way := seed % 3
	chance := func(path string) *rand.Rand {
		h := fnv.New64a()
		h.Write([]byte(path))
		return rand.New(rand.NewPCG(seed, h.Sum64()))
	}
	seen := map[uint64]bool{}
	var walk func(path string)
	walk = func(path string) {
		n, folder, ok := numberOf(path)
		if !ok || way == 0 {
			return
		}
		rel, _ := filepath.Rel(root, path)
		r := chance(rel)
		if !folder {
			now, _ := os.ReadFile(path)
			was, known := d.files[n]
			switch cut := min(len(was), len(now)) + r.IntN(len(now)-min(len(was), len(now))+1); {
			case way == 2 && r.IntN(2) == 0 && known:
			case r.IntN(3) == 0:
				d.files[n] = append(slices.Clone(now[:cut]), make([]byte, len(now)-cut)...)
			default:
				d.files[n] = now[:cut]
			}
			seen[n] = true
			return
		}
		now := entriesOf(path)
		if d.folders[n] == nil || way == 1 || r.IntN(2) == 0 {
			d.folders[n] = now
		}
		for name := range now {
			walk(filepath.Join(path, name))
		}
	}
	walk(root)
}

// restore restores a folder from the disk.
func (d *disk) restore(t *testing.T, path string, n uint64) {
	t.Helper()
	names, folder := d.folders[n]
	if !folder {
		if err := os.WriteFile(path, d.files[n], 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, n := range names {
		d.restore(t, filepath.Join(path, name), n)
	}
}

// A mortal is the transport of a rank that may die.
type mortal struct {
	ranks.Transport
	m *machine
}

func (t mortal) gone() error {
	t.m.mu.Lock()
	defer t.m.mu.Unlock()
	return t.m.dead[t.Rank()]
}

func (t mortal) Exchange(ctx context.Context, tag int, out, in [][]byte) error {
	t.m.mu.Lock()
	for _, f := range t.m.happens(fmt.Sprint("exchanges", t.Rank()), func(f fault) bool { return f.where == "exchanges" && f.rank == t.Rank() }) {
		if f.rank == 0 {
			t.m.strike(f)
		}
		t.m.dead[f.rank] = errDead
	}
	t.m.mu.Unlock()
	if err := t.gone(); err != nil {
		t.Transport.Close() // the other ranks notice
		return err
	}
	err := t.Transport.Exchange(ctx, tag, out, in)
	if gone := t.gone(); gone != nil {
		return gone
	}
	return err
}

func (t mortal) Send(ctx context.Context, to, tag int, b []byte) error {
	if err := t.gone(); err != nil {
		return err
	}
	return t.Transport.Send(ctx, to, tag, b)
}

func (t mortal) Close() error {
	t.Transport.Close()
	return nil
}

// A parity is a reward of the ids of a response, which may hang. As a reward that varies,
// its scores would be stored.
type parity struct {
	m      *machine
	rank   int
	varies bool
}

func (p parity) Varies() bool { return p.varies }

func (p parity) Score(ctx context.Context, group []reward.Sample) ([]reward.Score, error) {
	p.m.mu.Lock()
	hangs := p.m.happens(fmt.Sprint("graded", p.rank), func(f fault) bool { return f.what == "hangs" && f.rank == p.rank })
	p.m.mu.Unlock()
	for _, f := range hangs {
		p.m.stop[f.stops]()
		for ctx.Err() == nil {
			time.Sleep(time.Millisecond)
			p.m.mu.Lock()
			if len(p.m.dead) > 0 { // The launcher of the ranks stops all ranks when one is dead.
				p.m.stop[p.rank]()
			}
			p.m.mu.Unlock()
		}
		return nil, ctx.Err()
	}
	scores := make([]reward.Score, len(group))
	for i, x := range group {
		sum := len(x.Problem.Text)
		for _, id := range x.IDs {
			sum += int(id)
		}
		scores[i] = reward.Score{Value: float64(sum % 4), Answer: strconv.Itoa(sum)}
	}
	return scores, nil
}

// now is the clock of a rank, which may jump by up to four days either way.
func (m *machine) now() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, f := range m.happens("clock", func(f fault) bool { return f.what == "clock" }) {
		m.jump.Add(int64(time.Hour) * (int64(m.seed%193) - 96 + int64(f.at)))
	}
	return time.Now().Add(time.Duration(m.jump.Load()))
}

// Handle lets a machine read the log of its first rank, which tells which steps were
// saved and where the run continues.
func (m *machine) Handle(_ context.Context, r slog.Record) error {
	if m.say != nil {
		text := fmt.Sprint(r.Level, " ", r.Message)
		r.Attrs(func(a slog.Attr) bool { text += fmt.Sprint(" ", a); return true })
		m.say(text)
	}
	step := int64(0)
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "step" {
			step = a.Value.Int64()
		}
		if a.Key == "folder" {
			step, _ = strconv.ParseInt(strings.TrimPrefix(filepath.Base(a.Value.String()), "step-"), 10, 64)
		}
		return true
	})
	switch r.Message {
	case "saved a checkpoint":
		m.saved.Store(max(step, m.saved.Load()))
	case "resuming", "there is no checkpoint: the run begins again at its first step":
		m.resumed.Store(step)
	}
	return nil
}

func (m *machine) Enabled(context.Context, slog.Level) bool { return true }
func (m *machine) WithAttrs([]slog.Attr) slog.Handler       { return m }
func (m *machine) WithGroup(string) slog.Handler            { return m }

// A simulation is the state that the runs of all seeds share.
type simulation struct {
	env      *runtime.Env
	model    string
	base     string
	machines sync.Map // machines, by the name of the folder that contains the machine's run folder
	mu       sync.Mutex
	want     map[string]func() (map[string]string, error) // the files of the runs that were never stopped
}

// operation is files.Fault: it finds the machine and counts the operation there.
func (s *simulation) operation(op, path string) error {
	_, rest, _ := strings.Cut(path+"/", "simulated-")
	end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
	if m, ok := s.machines.Load(rest[:max(0, end)]); ok {
		return m.(*machine).operation(op, path)
	}
	return nil
}

// A variant is the settings that runs of several seeds have in common.
type variant struct {
	ranks  int
	varies bool // The reward's scores are stored.
	epochs int
	evals  bool
	shard  bool // Each rank has a part of the moments.
}

func (s *simulation) config(v variant, m *machine, rank int) rl.Config {
	c := chaosConfig("dapo", m.dir)
	set(&c, "reinforcepp", `{}`)
	c.Model.Path, c.Rollout.MaxNewTokens = s.model, 3
	c.Rollout.PromptsPerRound, c.Rollout.SamplesPerPrompt = 3, 2
	c.Train.Rounds, c.Train.BatchSize, c.Train.Epochs, c.Train.SaveMinutes, c.Train.KeepLast = 2, 3, v.epochs, 24*60, 2
	c.Reward = rl.RewardConfig{Name: "parity", Rule: parity{m, rank, v.varies}}
	if v.shard {
		c.Distributed.Shard = "optimizer"
	}
	if v.evals {
		c.Train.EvalEvery, c.Eval.Suites, c.Eval.Samples, c.Eval.MaxNewTokens = 1, rl.Suites(suiteFile), 1, 2
	}
	return c
}

// attempt trains once with all ranks, and returns their errors.
func (s *simulation) attempt(v variant, m *machine, resume bool) []error {
	errs, all := make([]error, v.ranks), make([]context.Context, v.ranks)
	for r := range all {
		all[r], m.stop[r] = context.WithCancel(context.Background())
		defer m.stop[r]()
	}
	var wait sync.WaitGroup
	for r, transport := range ranks.Local(v.ranks) {
		wait.Go(func() {
			group := ranks.New(mortal{transport, m})
			errs[r] = s.train(all[r], s.config(v, m, r), m, group, resume)
			if group.Lost() != nil && r == 0 {
				group.Abort(errs[r])
			}
			group.Close()
		})
	}
	wait.Wait()
	return errs
}

func (s *simulation) train(ctx context.Context, c rl.Config, m *machine, group *ranks.Group, resume bool) error {
	log := slog.New(slog.DiscardHandler)
	if group.First() {
		log = slog.New(m)
	}
	p, err := policy.Open(s.env, policy.Options{Path: c.Model.Path, DType: c.Model.DType})
	if err != nil {
		return err
	}
	defer p.Close()
	trainer, err := rl.NewOn(ctx, c, train.Setup{Ranks: group, Policy: p, Log: log, Observer: &quiet{}})
	if err != nil {
		return err
	}
	defer trainer.Close()
	rl.SetClock(trainer, m.now)
	_, err = trainer.Run(ctx, resume)
	return err
}

// whole returns the contents of a variant that was never stopped.
func (s *simulation) whole(t *testing.T, v variant) map[string]string {
	s.mu.Lock()
	name := fmt.Sprint("whole", v)
	one := s.want[name]
	if one == nil {
		one = sync.OnceValues(func() (map[string]string, error) {
			m := &machine{dir: filepath.Join(s.base, name, "run")}
			m.begin(nil, v.ranks)
			if err := errors.Join(s.attempt(v, m, false)...); err != nil {
				return nil, err
			}
			t.Logf("%+v: %v operations", v, m.counts)
			return contents(t, m.dir), nil
		})
		s.want[name] = one
	}
	s.mu.Unlock()
	files, err := one()
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// recorded returns metrics.jsonl, "" if there is none.
func (m *machine) recorded() string {
	text, _ := os.ReadFile(filepath.Join(m.dir, "metrics.jsonl"))
	return string(text)
}

// stopped prepares a machine for the attempt after one that ended with an error; before has
// the metrics with which the failed attempt began.
func (m *machine) stopped(t *testing.T, before string, err error) {
	home := filepath.Dir(m.dir)
	_, rescue, rescued := strings.Cut(err.Error(), " is saved in ")
	switch rescue, _, _ = strings.Cut(rescue, ":"); {
	case m.dead[0] != nil:
		n, _, _ := numberOf(home)
		if err := os.RemoveAll(home); err != nil {
			t.Fatal(err)
		}
		m.disk.restore(t, home, n)
	case rescued: // as its message says
		checkpoint := "checkpoints/" + list(t, rescue)[0]
		if err := errors.Join(os.RemoveAll(filepath.Join(m.dir, checkpoint)), os.CopyFS(filepath.Join(m.dir, checkpoint), os.DirFS(filepath.Join(rescue, checkpoint))), os.RemoveAll(rescue)); err != nil {
			t.Fatal(err)
		}
		fallthrough
	case !strings.Contains(err.Error(), "last checkpoint") && !m.fullAll && m.recorded() != before:
		// The run stopped in order, without losing a step.
		for line := range strings.Lines(m.recorded()) {
			if fields := metricsLine(t, line); fields["kind"] == "step" {
				m.saved.Store(max(m.saved.Load(), int64(fields["step"].(float64))))
			}
		}
	}
}

// seed simulates one seed, and returns how often each fault happened.
func (s *simulation) seed(t *testing.T, seed uint64) (happened []string) {
	r := rand.New(rand.NewPCG(seed, 38))
	v := variant{ranks: []int{1, 1, 1, 2, 2, 3}[r.IntN(6)], varies: r.IntN(3) == 0, epochs: 1 + r.IntN(2), evals: r.IntN(4) == 0, shard: r.IntN(3) == 0}
	v.shard = v.shard && v.ranks > 1
	name := fmt.Sprint("simulated-", seed)
	home := filepath.Join(s.base, name)
	m := &machine{dir: filepath.Join(home, name+"-run"), seed: seed}
	if os.Getenv(seedVariable) != "" {
		m.say = t.Log
	}
	s.machines.Store(fmt.Sprint(seed), m)
	defer s.machines.Delete(fmt.Sprint(seed))
	var trail []string
	fail := func(format string, args ...any) {
		t.Errorf("seed %d, %+v, after %v: %s\n%s=%d repeats it", seed, v, trail, fmt.Sprintf(format, args...), seedVariable, seed)
	}
	want := s.whole(t, v)
	for attempt, last := 0, 1+r.IntN(2); ; attempt++ {
		var faults []fault
		for k := 1 + r.IntN(4)/3; k > 0 && attempt < last; k-- {
			faults = append(faults, drawFault(r, v.ranks))
		}
		if err := os.MkdirAll(home, 0o755); err != nil {
			t.Fatal(err)
		}
		entries, _ := os.ReadDir(m.dir)
		resume, saved, before := len(entries) > 0, m.saved.Load(), m.recorded()
		m.begin(faults, v.ranks)
		if !resume {
			m.resumed.Store(0)
		}
		watch := time.AfterFunc(patience, func() {
			trace := make([]byte, 1<<20)
			panic(fmt.Sprintf("seed %d, %+v, after %v and %v, does not end; %s=%d repeats it\n%s",
				seed, v, trail, m.happened, seedVariable, seed, trace[:goruntime.Stack(trace, true)]))
		})
		errs := s.attempt(v, m, resume)
		watch.Stop()
		trail, happened = append(trail, fmt.Sprint(m.happened, " ", errs)), append(happened, m.happened...)
		err := errors.Join(errs...)
		switch from := m.resumed.Load(); {
		case err != nil && len(m.happened) == 0:
			fail("the run stops by itself")
			return happened
		case from >= 0 && from < saved:
			fail("step %d was saved, and the run goes on from step %d", saved, from)
			return happened
		}
		if err == nil {
			break
		}
		m.stopped(t, before, err)
	}
	got := contents(t, m.dir)
	for name, text := range want {
		if got[name] != text {
			fail("%s differs from that of the run that was never stopped", name)
		}
	}
	if len(got) != len(want) {
		fail("%v, not %v", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
	}
	os.RemoveAll(home)
	return happened
}

// TestSimulated simulates ten seeds, with ONERING_LONG=1 two thousand, and names the
// seeds that fail.
func TestSimulated(t *testing.T) {
	// Runs this small are faster with one thread each, unless another test has opened ONNX Runtime.
	env, err := runtime.Open(t.Context(), runtime.Options{Device: runtimetest.Device, Threads: 1, NoSpin: true, KeepSessions: true})
	if err == nil {
		defer env.Close()
	} else {
		env = runtimetest.Test(t)
	}
	s := &simulation{env: env, want: map[string]func() (map[string]string, error){}}
	base, err := os.MkdirTemp("/dev/shm", "onering-") // The numbers of removed files are never used again.
	if err != nil {
		t.Skip(err)
	}
	defer os.RemoveAll(base)
	s.base, s.model = base, smallestModel(t)
	t.Setenv("TMPDIR", base) // for the rescues
	from, to := uint64(0), uint64(10)
	if os.Getenv("ONERING_LONG") != "" {
		to = 2000
	}
	if text := os.Getenv(seedsVariable); text != "" {
		if _, err := fmt.Sscanf(text, "%d:%d", &from, &to); err != nil {
			t.Fatalf("%s=%s: want FROM:TO", seedsVariable, text)
		}
	}
	if text := os.Getenv(seedVariable); text != "" {
		if from, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
		to = from + 1
	}
	files.Fault = s.operation
	defer func() { files.Fault = nil }()
	var mu sync.Mutex
	tally := map[string]int{}
	t.Run("seeds", func(t *testing.T) {
		for seed := from; seed < to; seed++ {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				happened := s.seed(t, seed)
				mu.Lock()
				defer mu.Unlock()
				for _, f := range happened {
					what, _, _ := strings.Cut(f, "(")
					tally[what]++
				}
			})
		}
	})
	t.Logf("%d seeds: %v", to-from, tally)
}

// smallestModel writes a model of one layer that is eight wide, with random weights.
func smallestModel(t *testing.T) string {
	t.Helper()
	shape, dir := filepath.Join(t.TempDir(), "shape"), filepath.Join(t.TempDir(), "model")
	text := `{"architectures":["Qwen2ForCausalLM"],"model_type":"qwen2","hidden_size":8,"num_hidden_layers":1,"num_attention_heads":1,"num_key_value_heads":1,
		"intermediate_size":8,"vocab_size":32,"tie_word_embeddings":true,"rope_theta":10000.0,"rms_norm_eps":1e-06,"hidden_act":"silu",
		"max_position_embeddings":64,"initializer_range":0.5,"eos_token_id":1,"pad_token_id":0,"torch_dtype":"float32"}`
	if err := errors.Join(os.CopyFS(shape, data.ArithmeticModel()), os.WriteFile(filepath.Join(shape, "config.json"), []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
	m, err := models.ReadConfig(shape)
	if err != nil {
		t.Fatal(err)
	}
	w, err := m.Init(1)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := m.Save(dir, w, models.SaveOptions{DType: models.F32, Tokenizer: shape}); err != nil {
		t.Fatal(err)
	}
	return dir
}
