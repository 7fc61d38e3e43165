package eval

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"onering/internal/files"
	"onering/internal/strict"
	"onering/sampler"
)

// Settings decide the responses, together with the problems.
type Settings struct {
	Model    string   `json:"model"`                   // the folder, as it was given
	Weights  string   `json:"weights"`                 // identifies the model's weights
	DType    string   `json:"dtype,omitempty"`         // the type of the computation if it is not float32
	Template string   `json:"template"`                // the name of the prompt template, or a text with {problem} in it
	System   string   `json:"system,omitempty"`        // the system message of the template "chat"
	Args     []string `json:"template_args,omitempty"` // the arguments of the template "chat", each name=value
	Stops    []string `json:"stop,omitempty"`          // strings that end a response
	// Extract is the rule by which answers are found in responses; see reward.Extractor.
	// Old reports have none, which means auto.
	Extract     string `json:"extract,omitempty"`
	Reward      string `json:"reward,omitempty"`      // the reward with its settings, unless it is math with its defaults
	Environment string `json:"environment,omitempty"` // the environment with its settings if responses are episodes
	Samples     int    `json:"samples"`               // the number of responses to each problem
	// GradeTruncated lets truncated responses be graded and vote as others do. Otherwise
	// they count as wrong.
	GradeTruncated bool `json:"grade_truncated,omitempty"`
	sampler.Sampling
	Seed uint64 `json:"seed"`
}

// A Response is a graded response, and a line of a file of responses.
type Response struct {
	Suite   string    `json:"suite"`
	Problem string    `json:"problem"`
	Sample  int       `json:"sample"` // number of the sample, from 0
	Right   bool      `json:"right"`  // the reward's verdict
	Answer  string    `json:"answer"` // as extracted; "" if there is none
	Reason  string    `json:"reason,omitempty"`
	Fault   string    `json:"fault,omitempty"` // "limit" or "error" where the verifier gave up; it counts as wrong
	Finish  string    `json:"finish"`          // "stop", or "length" if the response is truncated
	Tokens  int       `json:"tokens"`
	Text    string    `json:"text"`
	IDs     []int32   `json:"ids"`
	LogProb []float32 `json:"logp"` // log-prob of each token, at the sampling temperature
}

// Truncated says whether a limit cut the response off.
func (r Response) Truncated() bool { return r.Finish == "length" }

// A Plan says what an evaluation samples. It is the first line of its file.
type Plan struct {
	Settings Settings    `json:"settings"`
	Suites   []suitePlan `json:"suites"`
}

// A suitePlan is the part of a plan for one suite.
type suitePlan struct {
	Name string `json:"name"`
	// IDs are the problems' names, distinct within the suite.
	IDs []string `json:"problems"`
	// Digest identifies the prompts and answers, beyond their names.
	Digest string `json:"digest"`
}

// Plan returns the plan to sample suites with these settings.
func (s Settings) Plan(suites []Suite) Plan {
	p := Plan{Settings: s}
	for _, x := range suites {
		p.Suites = append(p.Suites, x.plan())
	}
	return p
}

// A plan line says what kind of file it begins.
type planLine struct {
	Kind    string `json:"kind"`
	Version int    `json:"version"`
	Plan
}

// The kind and version of a file of responses.
const (
	responsesKind = "onering evaluation"
	version       = 1
)

// Responses are the responses to a Plan so far: verdicts in memory and, if there is a
// file, complete responses on disk.
//
// The file has a line per response, appended in one write as the response ends, in
// whatever order. When none is missing, Close sorts them by suite, problem and sample, so
// that the file does not depend on the order of sampling. Responses are used by one
// goroutine at a time.
type Responses struct {
	Plan
	suites map[string]*tally
	file   *os.File
	unlock func()
	path   string
	size   int64
	count  int
}

// A tally holds the responses of one suite.
type tally struct {
	index     map[string]int // from a problem's id to its place
	responses [][]*Response  // by problem (nil without responses) and sample; text, ids and log-probs are left out
	spans     [][]span       // where each response is in the file
}

// A span is a range of bytes of the file.
type span struct {
	from int64
	size int
}

// maxSamples bounds how many samples of a problem a file can make the program allocate.
const maxSamples = 1 << 16

// newResponses returns the responses to a plan, all of them still missing.
func newResponses(p Plan) (*Responses, error) {
	if n := p.Settings.Samples; n < 1 || n > maxSamples {
		return nil, fmt.Errorf("eval: %d samples a problem: must be from 1 to %d", n, maxSamples)
	}
	r := &Responses{Plan: p, suites: map[string]*tally{}}
	for _, s := range p.Suites {
		if r.suites[s.Name] != nil {
			return nil, fmt.Errorf("eval: two suites are called %q: name one of them NAME=PATH", s.Name)
		}
		if len(s.IDs) == 0 {
			return nil, fmt.Errorf("eval: suite %q has no problems", s.Name)
		}
		t := &tally{index: map[string]int{}}
		for i, id := range s.IDs {
			if _, ok := t.index[id]; ok {
				return nil, fmt.Errorf("eval: suite %q has two problems %q", s.Name, id)
			}
			t.index[id] = i
		}
		t.responses, t.spans = make([][]*Response, len(s.IDs)), make([][]span, len(s.IDs))
		r.suites[s.Name] = t
	}
	return r, nil
}

// Open creates the file of responses at path, which must not exist. If resumed is true it continues an existing file,
// whose plan may differ from p only in the model's folder. A last line that was being written when the evaluation
// stopped is dropped. No other process may have the file open. Without a path the responses are in memory only.
func (p Plan) Open(path string, resumed bool) (*Responses, error) {
	if path == "" {
		return p.Create(path)
	}
	real, err := filepath.EvalSymlinks(path) // a file has one lock for all of its names
	if err != nil {
		real = path
	}
	lock := filepath.Join(filepath.Dir(real), "."+filepath.Base(real)+".lock")
	unlock, err := files.Lock(context.Background(), lock, func() error {
		return errors.New("another process writes to it; wait for its end, or choose another name")
	})
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("eval: the responses cannot go to %q: there is no such folder; make it, or choose another name", path)
	}
	if err != nil {
		return nil, fmt.Errorf("eval: %s: %w", path, err)
	}
	begin := p.Create
	if resumed {
		begin = p.resume
	}
	r, err := begin(path)
	if err != nil {
		unlock()
		return nil, err
	}
	r.unlock = unlock
	return r, nil
}

// Create is Open of a new file in a folder that no other process writes to: it takes no lock.
func (p Plan) Create(path string) (*Responses, error) {
	r, err := newResponses(p)
	if err != nil || path == "" {
		return r, err
	}
	line, err := encode(planLine{responsesKind, version, p})
	if err != nil {
		return nil, err
	}
	if _, err := os.Lstat(path); err == nil {
		return nil, fmt.Errorf("eval: %s exists: resume it, or choose another name", path)
	}
	f, err := files.Append(path)
	if err != nil {
		return nil, fmt.Errorf("eval: %w", err)
	}
	r.file, r.path, r.unlock = f, path, func() {}
	if err := r.write(line); err != nil {
		f.Close()
		return nil, err
	}
	return r, nil
}

// resume opens the file of an evaluation that stopped, and cuts off a last line that is not whole. It
// creates the file if it is missing or empty.
func (p Plan) resume(path string) (*Responses, error) {
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) || err == nil && info.Mode().IsRegular() && info.Size() == 0 {
		if err == nil {
			err = os.Remove(path) // the evaluation stopped before it wrote the first line
		}
		if err == nil || errors.Is(err, os.ErrNotExist) {
			return p.Create(path)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("eval: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("eval: %s is not a regular file", path)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND, 0)
	if err != nil {
		return nil, fmt.Errorf("eval: %w", err)
	}
	r, err := read(f, path)
	if err == nil {
		if err = r.Plan.differs(p); err != nil {
			err = fmt.Errorf("eval: %s cannot be resumed: %w", path, err)
		}
	}
	if err == nil && r.size < info.Size() {
		err = f.Truncate(r.size) // behind this size there is an incomplete line
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	r.file, r.path = f, path
	return r, nil
}

// readResponses reads a file of responses, complete or not.
func readResponses(path string) (*Responses, error) {
	f, err := files.Open(path)
	if err != nil {
		return nil, fmt.Errorf("eval: %w", err)
	}
	defer f.Close()
	return read(f, path)
}

// maxLine bounds a line of a file of responses; a response of a million tokens
// takes some 30 MB.
const maxLine = 256 << 20

// read reads a file of responses up to its last whole line.
func read(f io.Reader, path string) (*Responses, error) {
	in := bufio.NewReaderSize(f, 1<<20)
	first, err := readLine(in)
	var head planLine
	if err == nil {
		err = strict.JSON(first, &head)
	}
	switch {
	case err == io.EOF:
		return nil, fmt.Errorf("eval: %s is not a file of responses: its first line is not whole", path)
	case err == nil && head.Kind != responsesKind:
		return nil, fmt.Errorf("eval: %s is not a file of responses: its first line is of kind %q, not %q", path, head.Kind, responsesKind)
	case err == nil && head.Version != version:
		return nil, fmt.Errorf("eval: %s is of version %d; this program reads version %d", path, head.Version, version)
	case err != nil:
		return nil, fmt.Errorf("eval: %s:1: %w", path, err)
	}
	r, err := newResponses(head.Plan)
	if err != nil {
		return nil, fmt.Errorf("%s:1: %w", path, err)
	}
	r.size = int64(len(first))
	for number := 2; ; number++ {
		line, err := readLine(in)
		if err == io.EOF {
			return r, nil
		}
		if err != nil {
			return nil, fmt.Errorf("eval: %s:%d: %w", path, number, err)
		}
		var x Response
		if err := strict.JSON(line, &x); err != nil {
			return nil, fmt.Errorf("eval: %s:%d: %w", path, number, err)
		}
		if err := r.keepInMemory(x, span{r.size, len(line)}); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, number, err)
		}
		r.size += int64(len(line))
	}
}

// readLine returns a line with its newline; a line without one counts as absent.
func readLine(in *bufio.Reader) ([]byte, error) {
	line, err := files.ReadLine(in, maxLine)
	if err == bufio.ErrTooLong {
		err = fmt.Errorf("the line is longer than %d MB", maxLine>>20)
	}
	return line, err
}

// differs names the first field in which two plans differ.
func (p Plan) differs(q Plan) error {
	values := func(s Settings) (m map[string]json.RawMessage) { // by key; Model may differ, and old files lack defaults
		s.Model, s.Extract, s.Reward = "", cmp.Or(s.Extract, "auto"), cmp.Or(s.Reward, "math")
		text, _ := json.Marshal(s) // texts and finite numbers can be encoded
		strict.JSON(text, &m)
		return m
	}
	text := func(x json.RawMessage) string { return cmp.Or(strings.Trim(string(x), `"`), "none") }
	was, want := values(p.Settings), values(q.Settings)
	for key := range want {
		was[key] = was[key] // so that the result has the keys of both
	}
	for _, key := range slices.Sorted(maps.Keys(was)) {
		if x, y := text(was[key]), text(want[key]); x != y {
			return fmt.Errorf("it was made with %s %s, not %s", key, x, y)
		}
	}
	if len(p.Suites) != len(q.Suites) {
		return fmt.Errorf("it was made with %d suites, not %d", len(p.Suites), len(q.Suites))
	}
	for i, s := range p.Suites {
		t := q.Suites[i]
		if s.Name != t.Name {
			return fmt.Errorf("suite %d was %q, not %q", i+1, s.Name, t.Name)
		}
		if s.Digest != t.Digest || !slices.Equal(s.IDs, t.IDs) {
			return fmt.Errorf("the problems of suite %q have changed", s.Name)
		}
	}
	return nil
}

// Add adds a response, and appends it to the file if there is one.
func (r *Responses) Add(x Response) error {
	line, err := encode(x)
	if err == nil {
		err = r.keepInMemory(x, span{r.size, len(line)})
	}
	if err != nil || r.file == nil {
		return err
	}
	return r.write(line)
}

// write appends a line in one call: the file gets the complete line, or an incomplete one
// that resume drops.
func (r *Responses) write(line []byte) error {
	n, err := r.file.Write(line)
	if err != nil {
		// An incomplete line must not run into the next one.
		return errors.Join(fmt.Errorf("eval: %w", err), r.file.Truncate(r.size))
	}
	r.size += int64(n)
	return nil
}

// keepInMemory stores a response in its place, without its text and tokens. at is where the file has its line.
func (r *Responses) keepInMemory(x Response, at span) error {
	t := r.suites[x.Suite]
	if t == nil {
		return fmt.Errorf("eval: a response to suite %q, which is not in the plan", x.Suite)
	}
	i, ok := t.index[x.Problem]
	if !ok {
		return fmt.Errorf("eval: a response to problem %q, which suite %q lacks", x.Problem, x.Suite)
	}
	if x.Sample < 0 || x.Sample >= r.Settings.Samples {
		return fmt.Errorf("eval: problem %q: sample %d of %d", x.Problem, x.Sample, r.Settings.Samples)
	}
	if t.responses[i] == nil {
		t.responses[i], t.spans[i] = make([]*Response, r.Settings.Samples), make([]span, r.Settings.Samples)
	}
	if t.responses[i][x.Sample] != nil {
		return fmt.Errorf("eval: problem %q: sample %d is there twice", x.Problem, x.Sample)
	}
	x.Text, x.IDs, x.LogProb = "", nil, nil // no report needs them
	t.responses[i][x.Sample], t.spans[i][x.Sample] = &x, at
	r.count++
	return nil
}

// Seen returns the responses so far, without text, ids and log-probs, in the order of
// suites, problems and samples.
func (r *Responses) Seen() (list []Response) {
	for _, s := range r.Suites {
		for _, samples := range r.suites[s.Name].responses {
			for _, x := range samples {
				if x != nil {
					list = append(list, *x)
				}
			}
		}
	}
	return list
}

// Missing returns the samples that a problem, given by its place in a suite, still lacks.
func (r *Responses) Missing(suite string, problem int) []int {
	var missing []int
	seen := r.suites[suite].responses[problem]
	for k := range r.Settings.Samples {
		if seen == nil || seen[k] == nil {
			missing = append(missing, k)
		}
	}
	return missing
}

// Count returns how many responses there are, and how many the plan asks for.
func (r *Responses) Count() (have, want int) {
	for _, s := range r.Suites {
		want += len(s.IDs) * r.Settings.Samples
	}
	return r.count, want
}

// Close sorts a file that has all responses, and closes it.
func (r *Responses) Close() error {
	if r.file == nil {
		return nil
	}
	f := r.file
	r.file = nil
	defer r.unlock()
	err := errors.Join(files.FaultOf("sync", r.path), f.Sync()) // tests make the first one fail
	if have, want := r.Count(); err == nil && have == want {
		err = r.sort(f)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("eval: %s: %w", r.path, err)
	}
	return nil
}

// sort rewrites the file in order. A kill leaves the old file or the new one.
func (r *Responses) sort(f *os.File) error {
	var spans []span
	for _, s := range r.Suites {
		for _, samples := range r.suites[s.Name].spans {
			spans = append(spans, samples...)
		}
	}
	byPlace := func(a, b span) int { return cmp.Compare(a.from, b.from) }
	if slices.IsSortedFunc(spans, byPlace) {
		return nil
	}
	head := slices.MinFunc(spans, byPlace).from // how long the first line is, the plan
	return files.WriteFile(r.path, func(w io.Writer) error {
		_, err := io.Copy(w, io.NewSectionReader(f, 0, head))
		for _, s := range spans {
			if err == nil {
				_, err = io.Copy(w, io.NewSectionReader(f, s.from, int64(s.size)))
			}
		}
		return err
	})
}

// encode returns a JSON line.
func encode(x any) ([]byte, error) {
	var line bytes.Buffer
	enc := json.NewEncoder(&line)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(x); err != nil {
		return nil, fmt.Errorf("eval: %w", err)
	}
	return line.Bytes(), nil
}
