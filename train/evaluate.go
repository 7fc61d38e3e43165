package train

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	goruntime "runtime"
	"strings"
	"sync"
	"unsafe"

	"onering/data"
	"onering/eval"
	"onering/sampler"
	"onering/train/metrics"
	"onering/verifier"
)

// An Evaluation is the results of all suites at one point of a run.
type Evaluation struct {
	Round, Step int
	Results     []Result
}

// A Result is how a policy did on one suite.
type Result struct {
	Suite    string
	Problems int
	Samples  int     // per problem
	Pass1    float64 // mean share of right responses, pass@1
	Length   float64 // mean response tokens
	Cut      float64 // share of truncated responses
	// Score has all of it, with confidence intervals.
	Score eval.Score
}

func (e Evaluation) record() metrics.Record {
	r := metrics.Record{}.With("kind", "eval").With("round", e.Round).With("step", e.Step)
	mean := 0.0
	for _, x := range e.Results {
		name := "eval/" + x.Suite
		r = r.With(name+"/pass@1", x.Pass1).With(name+"/pass@1_low", x.Score.Pass1.Low).With(name+"/pass@1_high", x.Score.Pass1.High)
		for j, at := range x.Score.PassK {
			r = r.With(fmt.Sprintf("%s/pass@%d", name, at.K), at.Value).With(fmt.Sprintf("%s/maj@%d", name, at.K), x.Score.MajorityK[j].Value)
		}
		r = r.With(name+"/response_length", x.Length).With(name+"/truncated_share", x.Cut)
		mean += x.Pass1 / float64(len(e.Results))
	}
	if len(e.Results) > 1 {
		r = r.With("eval/average/pass@1", mean)
	}
	return r
}

// A Suite is a set of held-out problems.
type Suite struct {
	Name     string
	Problems []Problem
}

// heldOutSums is how many problems the embedded task is evaluated on: enough
// for a standard error of about two points.
const heldOutSums = 512

// evalSeed orders the embedded held-out problems; it is the same for every run
// so that runs compare.
const evalSeed = 1 << 40

// OpenSuite reads the suite that spec names: builtin:arithmetic, NAME=PATH, a
// path, or a name to be looked up in dir; see eval.Locate. A row without a
// problem or an answer is an error: without it the score would be another's.
func OpenSuite(spec, dir string, o data.Options) (Suite, error) {
	if name, ok := strings.CutPrefix(spec, "builtin:"); ok {
		problems, _, err := OpenProblems(spec, data.Options{}, true)
		if err != nil {
			return Suite{}, err
		}
		return Suite{name, problems.Take(evalSeed, 0, heldOutSums)}, nil
	}
	name, path, err := eval.Locate(spec, dir)
	if err != nil {
		return Suite{}, err
	}
	problems, _, err := OpenProblems(path, o, true)
	if err != nil {
		return Suite{}, err
	}
	list, ok := problems.(table)
	if !ok {
		return Suite{}, fmt.Errorf("train: suite %q: %s is no file of problems", name, path)
	}
	return Suite{name, list}, nil
}

// plan names the suite's problems, distinctly, and says what they are.
func (s Suite) plan() eval.Suite {
	out := eval.Suite{Name: s.Name}
	seen := map[string]int{}
	h := sha256.New()
	enc := json.NewEncoder(h)
	for _, q := range s.Problems {
		id := q.ID
		for seen[id] > 0 { // names of another repeat's form may exist as well
			seen[q.ID]++
			id = fmt.Sprintf("%s#%d", q.ID, seen[q.ID])
		}
		seen[id]++
		out.IDs = append(out.IDs, id)
		enc.Encode(q) // neither strings nor a hash can fail
	}
	out.Digest = "sha256:" + hex.EncodeToString(h.Sum(nil))
	return out
}

// keys are the sampler's keys of the problems. They follow from the texts, so
// that a problem's draws are the same in whatever file, place or company it is.
func (s Suite) keys() []uint64 {
	seen := map[string]uint64{}
	out := make([]uint64, len(s.Problems))
	for i, q := range s.Problems {
		h := sha256.Sum256([]byte(q.Text))
		// A problem that comes again has draws of its own.
		out[i] = binary.LittleEndian.Uint64(h[:]) + seen[q.Text]
		seen[q.Text]++
	}
	return out
}

// NewPlan is the plan to sample suites with these settings.
func NewPlan(s eval.Settings, suites []Suite) eval.Plan {
	p := eval.Plan{Settings: s}
	for _, x := range suites {
		p.Suites = append(p.Suites, x.plan())
	}
	return p
}

// Fingerprint tells these weights from others: a checksum over all of them.
func (p *Policy) Fingerprint() string {
	data := p.Weights.Data
	bytes := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(data))), len(data)*4)
	return fmt.Sprintf("crc32c:%08x", crc32.Checksum(bytes, crc32.MakeTable(crc32.Castagnoli)))
}

// Settings are what the prompter decides of an evaluation's settings.
func (p *Prompter) Settings() eval.Settings {
	return eval.Settings{Template: p.template.Name, System: p.template.System, Stops: p.template.Stops}
}

// Longest is the most tokens that a prompt of the suites has.
func (p *Prompter) Longest(suites []Suite) (int, error) {
	longest := 0
	for _, s := range suites {
		for _, q := range s.Problems {
			prompt, err := p.Encode(q)
			if err != nil {
				return 0, err
			}
			longest = max(longest, len(prompt))
		}
	}
	return longest, nil
}

// SameAnswer says whether two extracted answers mean the same.
func SameAnswer(v verifier.Verifier) func(a, b string) bool {
	return func(a, b string) bool {
		return v.VerifyAny([]string{a}, `\boxed{`+b+`}`).Correct || v.VerifyAny([]string{b}, `\boxed{`+a+`}`).Correct
	}
}

// Evaluate samples and grades what responses, made from NewPlan of the same
// suites, still lack. Each response is added as it ends, so those there are at
// an error or the end of ctx are kept. What a response is depends on the
// settings, the problem's text and the sample's number alone, not on the number
// of slots or on what is there already; one slot of d is spent on that (see
// invariant), unless there is but one.
//
// A problem whose prompt leaves no room in a slot counts as truncated.
// progress may be nil; it is told of each response's tokens as it ends.
func Evaluate(ctx context.Context, d sampler.Decoder, p *Prompter, suites []Suite, responses *eval.Responses, v verifier.Verifier, progress func(tokens int)) error {
	if d.Slots() > 1 {
		single := newInvariant(d)
		defer single.close()
		d = single
	}
	g := &grader{prompter: p, verifier: v, suites: suites, responses: responses, progress: progress}
	if err := g.ask(d.MaxTokens()); err != nil {
		return err
	}
	if len(g.requests) == 0 {
		return nil
	}
	s := responses.Settings
	o := sampler.Options{
		Temperature: s.Temperature, TopP: s.TopP, TopK: s.TopK, Greedy: s.Greedy,
		MaxNewTokens: s.MaxTokens, EOS: p.policy.Model.EOS, Seed: s.Seed,
		Stops: p.Stops(), Text: func() sampler.TextDecoder { return p.policy.Tokenizer.NewDecoder() },
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// Verifying takes time that the decoder should not wait for. The queue has
	// room for all responses, so the sampler never does.
	total := 0
	for _, r := range g.requests {
		total += r.Samples
	}
	queue := make(chan sampler.Response, total)
	var wg sync.WaitGroup
	for range goruntime.GOMAXPROCS(0) {
		wg.Go(func() {
			for r := range queue {
				if err := g.grade(r); err != nil {
					cancel(err)
				}
			}
		})
	}
	_, _, err := sampler.Sample(ctx, d, o, g.requests, func(r sampler.Response) { queue <- r })
	close(queue)
	wg.Wait()
	if failed := context.Cause(ctx); failed != nil && !errors.Is(failed, context.Canceled) {
		return failed
	}
	if err != nil {
		return fmt.Errorf("train: evaluation: %w", err)
	}
	return nil
}

// A grader turns the sampler's responses into those of an evaluation.
type grader struct {
	prompter *Prompter
	verifier verifier.Verifier
	suites   []Suite
	requests []sampler.Request
	asked    []asked // parallel to requests

	mu        sync.Mutex // guards what follows
	responses *eval.Responses
	progress  func(tokens int)
}

// asked is the problem of a request, and the numbers of the samples it is for.
type asked struct {
	suite, problem int
	samples        []int
}

// ask makes the requests for the responses that are missing.
func (g *grader) ask(maxTokens int) error {
	s := g.responses.Settings
	for i, suite := range g.suites {
		for j, key := range suite.keys() {
			name := g.responses.Suites[i].Name
			missing := g.responses.Missing(name, j)
			if len(missing) == 0 {
				continue
			}
			prompt, err := g.encode(suite.Problems[j])
			if err != nil {
				return fmt.Errorf("train: suite %q, problem %q: %w", name, g.responses.Suites[i].IDs[j], err)
			}
			if len(prompt) >= maxTokens {
				for _, k := range missing {
					err := g.add(eval.Response{
						Suite: name, Problem: g.responses.Suites[i].IDs[j], Sample: k, Finish: string(sampler.Length),
						Reason: fmt.Sprintf("the prompt has %d tokens, there is room for %d with the response", len(prompt), maxTokens),
					})
					if err != nil {
						return err
					}
				}
				continue
			}
			r := sampler.Request{Prompt: prompt, ID: key, Samples: len(missing)}
			// The sampler numbers the samples of a request from 0. Where others
			// are wanted their uniforms are given.
			if len(missing) < s.Samples && !s.Greedy {
				for _, k := range missing {
					u := make([]float32, min(s.MaxTokens, maxTokens-len(prompt)))
					for t := range u {
						u[t] = sampler.Uniform(s.Seed, key, k, t)
					}
					r.Uniforms = append(r.Uniforms, u)
				}
			}
			g.requests = append(g.requests, r)
			g.asked = append(g.asked, asked{i, j, missing})
		}
	}
	return nil
}

// encode returns the ids of a problem's prompt, at least one. A vocabulary that
// cannot express the problem is not the model's fault, but no score either.
func (g *grader) encode(q Problem) ([]int32, error) {
	if err := g.prompter.policy.Tokenizer.Check(q.Text); err != nil {
		return nil, err
	}
	ids, err := g.prompter.Encode(q)
	if err == nil && len(ids) == 0 {
		err = errors.New("the prompt is empty")
	}
	return ids, err
}

// grade verifies a response and files it.
func (g *grader) grade(r sampler.Response) error {
	at := g.asked[r.Request]
	x := eval.Response{
		Suite: g.suites[at.suite].Name, Problem: g.responses.Suites[at.suite].IDs[at.problem], Sample: at.samples[r.Sample],
		Finish: string(r.Finish), Tokens: len(r.IDs), IDs: r.IDs, LogProb: r.LogProb,
		Text: g.prompter.policy.Tokenizer.Decode(r.IDs, true),
	}
	verdict := g.verifier.VerifyAny(g.suites[at.suite].Problems[at.problem].Answers, x.Text)
	x.Right = verdict.Correct && r.Finish != sampler.Length
	x.Answer, x.Reason = verdict.Answer, verdict.Reason
	switch verdict.Status {
	case verifier.Limit:
		x.Fault = "limit"
	case verifier.Error:
		x.Fault = "error"
	}
	return g.add(x)
}

func (g *grader) add(x eval.Response) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.responses.Add(x); err != nil {
		return err
	}
	if g.progress != nil {
		g.progress(x.Tokens)
	}
	return nil
}

// run evaluates the suite during training. The draws do not depend on the
// training seed or the round.
func (s Suite) run(ctx context.Context, d sampler.Decoder, p *Prompter, c EvalConfig, v verifier.Verifier, progress func(int)) (Result, error) {
	o := p.Settings()
	o.Samples, o.Temperature, o.TopP = c.Samples, c.Temperature, c.TopP
	o.MaxTokens, o.Seed = c.MaxNewTokens, evalSeed
	if c.Temperature == 0 {
		o.Temperature, o.TopP, o.Greedy = 1, 1, true
	}
	responses, err := eval.New(NewPlan(o, []Suite{s}))
	if err != nil {
		return Result{}, err
	}
	if err := Evaluate(ctx, d, p, []Suite{s}, responses, v, progress); err != nil {
		return Result{}, err
	}
	report, err := responses.Report(SameAnswer(v))
	if err != nil {
		return Result{}, err
	}
	x := report.Suites[0]
	return Result{Suite: x.Suite, Problems: x.Problems, Samples: x.Samples, Pass1: x.Pass1.Value, Length: x.Tokens, Cut: x.Truncated, Score: x}, nil
}
