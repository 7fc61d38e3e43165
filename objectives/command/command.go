// Package command is the objective of a program that the user writes in any language, for
// example with PyTorch, which differentiates it. The program reads a JSON object for each
// optimizer step from its standard input, one on each line, and answers with one line on its
// standard output:
//
//	{"id": 1, "step": 0, "steps": 40, "state": null, "trajectories": [{"logp": [...], "at": [...],
//	 "old_logp": [...], "advantage": 0.5, "reward": 1, "group": 0, "truncated": false, "ids": [...]}, ...]}
//	{"id": 1, "loss": -0.02, "weights": [[...], ...]}
//
// weights are dloss/dlogp, one number for each token, in the order of the trajectories. "at" has
// the log-probs as constants: a quantity that is detached from the gradient is computed from
// it. It is logp, but for the test of the derivative. ref_logp, entropy and token_advantage
// are there where the run has them.
//
// What the program answers as "state", any JSON, comes back with the next step and is kept in
// checkpoints, so a program that holds nothing else resumes to the same bits. {"id": 1,
// "error": "..."} ends the run. A program that dies or does not answer in time is started
// anew and asked again.
//
// The objective http asks a server in the same way: it posts the object, whose id is then always
// 1, and takes the answer from the body.
package command

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"math"
	"strings"
	"sync"
	"time"

	"onering/internal/process"
	"onering/internal/remote"
	"onering/internal/strict"
	"onering/objectives"
)

func init() {
	objectives.Register("command", func() objectives.Objective {
		o := &Program{asked: newAsked("command")}
		o.askOnce = o.exchange
		return o
	})
}

// A Program is the objective that asks a process, which keeps running.
type Program struct {
	// Command is the program and its arguments, such as ["python3", "loss.py"]. Required.
	Command []string `toml:"command"`
	asked
}

// An asked objective is one that something outside computes. The shared settings say how
// advantages are computed; their penalties are added to the loss that is answered, with 1/T for
// each token.
type asked struct {
	objectives.Shared
	// Wire is json, lists of numbers, or float32: each list is a text, base64 of little-endian
	// float32, in questions, and may be one in answers. Default json.
	Wire string `toml:"wire" choice:"json float32"`
	// Timeout is the seconds that an answer may take, Retries how often a step is asked again. Defaults 60, 2.
	Timeout float64 `toml:"timeout" range:"(0,86400]"`
	Retries int     `toml:"retries" range:"[0,100]"`
	// Reference and Entropy ask for log-probs of the reference and for entropies. Default false.
	Reference bool `toml:"reference"`
	Entropy   bool `toml:"entropy"`
	// Apart says that a response's weights depend on no other's log-probs, which saves memory. Default false.
	Apart bool `toml:"apart"`

	name    string                                // the objective's
	whom    string                                // whom it asks, for errors
	askOnce func(question []byte) ([]byte, error) // asks once; a question lacks the brace and the id at its beginning
	mu      sync.Mutex
	key     uint64  // of the newest batch
	answer  *answer // and what was answered; nil if there is none
	state   json.RawMessage
}

func newAsked(name string) asked {
	return asked{Shared: objectives.Defaults("standardized"), Wire: "json", Timeout: 60, Retries: 2, name: name}
}

// A response is a trajectory as the program reads it. Lists are []float64 or a text.
type response struct {
	LogProb        any     `json:"logp"`
	At             any     `json:"at"`
	OldLogProb     any     `json:"old_logp"`
	RefLogProb     any     `json:"ref_logp,omitempty"`
	Entropy        any     `json:"entropy,omitempty"`
	TokenAdvantage any     `json:"token_advantage,omitempty"`
	Advantage      float64 `json:"advantage"`
	Reward         float64 `json:"reward"`
	Group          int     `json:"group"`
	Truncated      bool    `json:"truncated"`
	IDs            []int32 `json:"ids,omitempty"`
}

type answer struct {
	Loss    *float64          `json:"loss"`
	Weights []json.RawMessage `json:"weights"`
	State   json.RawMessage   `json:"state"`
	Error   *string           `json:"error"`

	weights [][]float64
}

// Validate asks for a program.
func (o *Program) Validate() error {
	return errors.Join(o.Shared.Validate(), process.Check("command", o.Command, "loss.py"))
}

// Ready says which part of the program is missing.
func (o *Program) Ready(context.Context) error { return process.Find("objective.command", o.Command) }

// NeedsReference implements the method that objectives.NeedsOf calls.
func (o *asked) NeedsReference() bool { return o.Reference || o.Shared.NeedsReference() }

// NeedsEntropy implements the method that objectives.NeedsOf calls.
func (o *asked) NeedsEntropy() bool { return o.Entropy || o.Shared.NeedsEntropy() }

// ReadsBatch implements the method that objectives.NeedsOf calls: the program reads all responses.
func (o *asked) ReadsBatch() bool { return !o.Apart }

// WeighsApart implements the method that objectives.NeedsOf calls.
func (o *asked) WeighsApart() bool { return o.Apart }

// Loss implements objectives.Objective by the program's loss.
func (o *asked) Loss(b, at objectives.Batch) float64 {
	loss := *o.ask(b, at).Loss
	for _, t := range b.Trajectories {
		loss += o.Penalty(t, o.TokenScale(b, 0))
	}
	return loss
}

// Weights implements objectives.Objective by the program's weights.
func (o *asked) Weights(b objectives.Batch, w [][]float64) {
	a := o.ask(b, b)
	for i, t := range b.Trajectories {
		copy(w[i], a.weights[i])
		o.AddPenalty(t, o.TokenScale(b, i), w[i])
	}
}

// TokenScale implements the method that the host asks for the scale of penalties.
func (*asked) TokenScale(b objectives.Batch, _ int) float64 { return 1 / float64(b.Tokens()) }

// EntropyWeights implements objectives.EntropyWeigher.
func (o *asked) EntropyWeights(b objectives.Batch, v [][]float64) {
	for i := range v {
		o.FillEntropy(o.TokenScale(b, i), v[i])
	}
}

// Observe implements objectives.Observer: the state that the program answered with counts
// from the next step on.
func (o *asked) Observe(b objectives.Batch) {
	a := o.ask(b, b)
	o.Shared.Observe(b)
	o.mu.Lock()
	defer o.mu.Unlock()
	if a.State != nil {
		o.state = a.State
	}
	o.answer = nil
}

// MarshalText returns the program's state.
func (o *asked) MarshalText() ([]byte, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.state == nil {
		return o.JoinState([]byte("null"))
	}
	return o.JoinState(o.state)
}

// UnmarshalText restores the program's state.
func (o *asked) UnmarshalText(text []byte) error {
	if !json.Valid(text) {
		return errors.New("the program's state is not JSON")
	}
	own, err := o.SplitState(text)
	if err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.state, o.answer = bytes.Clone(own), nil
	return nil
}

// ask returns the answer for a batch: the kept one if the newest question was the same, else that of the program, which it
// asks up to 1 + Retries times while no answer comes. It panics with an objectives.Failed if there is none to use.
func (o *asked) ask(b, at objectives.Batch) *answer {
	o.mu.Lock()
	defer o.mu.Unlock()
	key := o.keyOf(b, at)
	if o.answer != nil && key == o.key {
		return o.answer
	}
	question, err := o.encode(b, at)
	for try := 0; err == nil; try++ { // an answer that cannot be used is no reason to ask again
		var text []byte
		var a *answer
		if text, err = o.askOnce(question); err == nil {
			a, err = read(text, b)
		} else if refused, ok := errors.AsType[*remote.Refusal](err); (!ok || !refused.Final) && try < o.Retries {
			slog.Warn("what computes the objective did not answer and is asked again", "objective", o.name, "step", b.Step, "reason", process.Printable(err.Error()))
			err = nil
			continue
		}
		if err == nil {
			o.key, o.answer = key, a
			return a
		}
	}
	panic(objectives.Failed{Err: fmt.Errorf("objective %q: %s: step %d: %w", o.name, o.whom, b.Step, err)})
}

var seed = maphash.MakeSeed()

// keyOf is a hash of what a question has, which tells batches apart: a step asks for one and the same up to three times.
func (o *asked) keyOf(b, at objectives.Batch) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	h.Write(o.state)
	maphash.WriteComparable(&h, [3]int{b.Step, b.Steps, len(b.Trajectories)})
	for i, t := range b.Trajectories {
		maphash.WriteComparable(&h, [4]float64{t.Advantage, t.Reward, float64(t.Group), float64(len(t.LogProb))})
		for _, list := range [][]float64{t.LogProb, at.Trajectories[i].LogProb, t.OldLogProb, t.RefLogProb, t.Entropy, t.TokenAdvantage} {
			for _, x := range list {
				maphash.WriteComparable(&h, x)
			}
		}
	}
	return h.Sum64()
}

// encode returns the question for a batch, without the brace and the id at its beginning, which askOnce adds. Its lists of
// numbers are such lists or base64 of float32, as the setting wire says.
func (o *asked) encode(b, at objectives.Batch) ([]byte, error) {
	all := make([]response, len(b.Trajectories))
	for i, t := range b.Trajectories {
		all[i] = response{o.wireList(t.LogProb), o.wireList(at.Trajectories[i].LogProb), o.wireList(t.OldLogProb), o.wireListOrNil(t.RefLogProb),
			o.wireListOrNil(t.Entropy), o.wireListOrNil(t.TokenAdvantage), t.Advantage, t.Reward, t.Group, t.Truncated, t.IDs}
	}
	line, err := json.Marshal(struct {
		Step         int             `json:"step"`
		Steps        int             `json:"steps"`
		State        json.RawMessage `json:"state"`
		Trajectories []response      `json:"trajectories"`
	}{b.Step, b.Steps, o.state, all})
	if err != nil {
		return nil, err
	}
	return line[1:], nil // without the brace
}

func (o *asked) wireList(x []float64) any {
	if o.Wire != "float32" {
		return append([]float64{}, x...)
	}
	packed := make([]byte, 0, 4*len(x))
	for _, v := range x {
		packed = binary.LittleEndian.AppendUint32(packed, math.Float32bits(float32(v)))
	}
	return packed // JSON has bytes as base64
}

func (o *asked) wireListOrNil(x []float64) any {
	if x == nil {
		return nil
	}
	return o.wireList(x)
}

var words = process.Words{Kind: "objective", Unit: "step", Remedy: "objective.timeout says how long it has"}

// processes are those that run, by their command. What a question is about stands in it, so
// objectives with one command share its process.
var processes = struct {
	sync.Mutex
	of map[string]*process.Lines
}{of: map[string]*process.Lines{}}

// running returns the process of the command, a new one where there is none or it has ended.
func (o *Program) running() (*process.Lines, error) {
	processes.Lock()
	defer processes.Unlock()
	key := strings.Join(o.Command, "\x00")
	if p := processes.of[key]; p != nil && p.Running() {
		return p, nil
	}
	p, err := process.StartLines(o.Command, words)
	if err == nil {
		processes.of[key] = p
	}
	return p, err
}

// exchange asks a question.
func (o *Program) exchange(question []byte) ([]byte, error) {
	o.whom = fmt.Sprintf("%q", strings.Join(o.Command, " "))
	p, err := o.running()
	if err != nil {
		return nil, err
	}
	limit := time.Duration(o.Timeout * float64(time.Second))
	_, text, err := p.Ask(context.Background(), limit, func(id int) []byte { return fmt.Appendf(nil, `{"id":%d,%s`, id, question) })
	return text, err
}

// read reads an answer to the question for b, checks it and unpacks its weights, lists of numbers or base64 of float32.
func read(text []byte, b objectives.Batch) (*answer, error) {
	a := new(answer)
	if err := strict.JSON(text, a); err != nil {
		return nil, fmt.Errorf("the answer %s cannot be read: %w", process.Excerpt(text), err)
	}
	switch {
	case a.Error != nil:
		return nil, fmt.Errorf("it reports: %s", process.Printable(*a.Error))
	case a.Loss == nil:
		return nil, errors.New(`the answer has no "loss"`)
	case len(a.Weights) != len(b.Trajectories):
		return nil, fmt.Errorf("the answer has weights for %d responses, not for %d", len(a.Weights), len(b.Trajectories))
	}
	a.weights = make([][]float64, len(a.Weights))
	for i, raw := range a.Weights {
		var packed []byte
		err := json.Unmarshal(raw, &a.weights[i])
		if err != nil && json.Unmarshal(raw, &packed) == nil && len(packed)%4 == 0 {
			err, a.weights[i] = nil, make([]float64, len(packed)/4)
			for j := range a.weights[i] {
				a.weights[i][j] = float64(math.Float32frombits(binary.LittleEndian.Uint32(packed[4*j:])))
			}
		}
		if err != nil {
			return nil, fmt.Errorf("response %d: its weights are neither a list of numbers nor base64 of float32", i)
		}
		if n := len(b.Trajectories[i].LogProb); len(a.weights[i]) != n {
			return nil, fmt.Errorf("response %d: %d weights for %d tokens", i, len(a.weights[i]), n)
		}
	}
	return a, nil
}
