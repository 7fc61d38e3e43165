package rundir

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"

	"onering/internal/files"
	"onering/internal/strict"
)

// A RolloutLine is one line of a file in rollouts/: a response, its reward, and
// what training made of its tokens. Readers find lines of older versions with less.
type RolloutLine struct {
	Problem string `json:"problem"`
	// Source is the file of the problem, if there are several.
	Source string `json:"source,omitempty"`
	Sample int    `json:"sample"`
	Prompt string `json:"prompt"`
	// PromptText and PromptIDs are the prompt as the model saw it. Columns are the columns of
	// the problem's row, which may be long: only the first response to a problem has them.
	PromptText string          `json:"prompt_text,omitempty"`
	PromptIDs  []int32         `json:"prompt_ids,omitempty"`
	Columns    json.RawMessage `json:"columns,omitempty"`
	// Greedy is the greedy response to the problem, if the objective compares with it; on
	// the line of the first response.
	Greedy *GreedyLine `json:"greedy,omitempty"`

	Response string   `json:"response"`
	Answers  []string `json:"answers"`
	Answer   string   `json:"answer"`
	Reason   string   `json:"reason,omitempty"`
	// Status is "ok", or "limit" or "error" if the response could not be graded.
	Status string `json:"status"`
	// Reward is nil, and Skipped true, if the response was not graded.
	Reward  *float64 `json:"reward"`
	Skipped bool     `json:"skipped,omitempty"`
	// Failed says that the environment could not continue the episode, which was then skipped.
	Failed bool `json:"failed,omitempty"`
	// Right says whether the response is right. It is nil if the reward cannot tell.
	Right *bool `json:"right,omitempty"`
	// Rewards are the components of the reward, Log its further figures.
	Rewards   map[string]float64 `json:"rewards,omitempty"`
	Log       map[string]float64 `json:"log,omitempty"`
	Advantage float64            `json:"advantage"`
	Truncated bool               `json:"truncated,omitempty"`
	// Part says that it is an earlier segment of an episode whose history was rewritten.
	Part bool `json:"part,omitempty"`
	// Turns say who wrote which part of IDs, nil if the policy wrote all.
	Turns Turns   `json:"turns,omitempty"`
	IDs   []int32 `json:"ids"`
	// LogP has the log-prob of each token when it was sampled. With rollout.logp = "kept" it is the one among
	// the tokens of Kept: the ids that the filters kept, and none where they kept the whole vocabulary.
	LogP rounded[float64] `json:"logp"`
	Kept [][]int32        `json:"kept,omitempty"`
	// W and Delta have dLoss/dlogp of each token, and its log-prob minus that of the old policy, both before
	// the newest optimizer step with the response. They are nil without such a step.
	W     rounded[float32] `json:"w,omitempty"`
	Delta rounded[float32] `json:"delta,omitempty"`
}

// A GreedyLine is a response that is not trained on. Its fields are those of a RolloutLine.
type GreedyLine struct {
	Response  string           `json:"response"`
	Answer    string           `json:"answer"`
	Reward    *float64         `json:"reward"`
	Skipped   bool             `json:"skipped,omitempty"`
	Truncated bool             `json:"truncated,omitempty"`
	IDs       []int32          `json:"ids"`
	LogP      rounded[float64] `json:"logp"`
}

// rounded floats have five digits in JSON, enough to read them. They have to be finite. None are null, whether
// the slice is nil or empty: a checkpoint does not tell the two apart.
type rounded[F float32 | float64] []F

// MarshalJSON writes five digits of each number.
func (x rounded[F]) MarshalJSON() ([]byte, error) {
	if len(x) == 0 {
		return []byte("null"), nil
	}
	b := append(make([]byte, 0, 12*len(x)+2), '[')
	for i, v := range x {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendFloat(b, float64(v), 'g', 5, 64)
	}
	return append(b, ']'), nil
}

// UnmarshalJSON implements json.Unmarshaler. A null element, which older versions wrote
// for numbers that are not finite, becomes NaN.
func (x *rounded[F]) UnmarshalJSON(text []byte) error {
	if !bytes.Contains(text, []byte("null")) {
		return strict.JSON(text, (*[]F)(x))
	}
	var list []*F
	err := strict.JSON(text, &list)
	*x = nil
	for _, p := range list {
		if p == nil {
			nan := F(math.NaN())
			p = &nan
		}
		*x = append(*x, *p)
	}
	return err
}

// ReadHead reads a line without its arrays of numbers at the end: they are most of the
// line, and decoding them takes many times as long.
func (l *RolloutLine) ReadHead(line []byte) error {
	if at := bytes.LastIndex(line, []byte(`,"ids":[`)); at > 0 {
		short := append(line[:at:at], '}')
		if strict.JSON(short, l) == nil {
			return nil
		}
		*l = RolloutLine{}
	}
	return strict.JSON(line, l)
}

// Fields are the names that a line has in JSON.
func (RolloutLine) Fields() (names []string) {
	for _, f := range reflect.VisibleFields(reflect.TypeFor[RolloutLine]()) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}

// EvaluationFile returns the path for the responses to a suite after so many rounds, and
// removes the file that a killed process left there. It returns "" for the zero Folder.
func (f *Folder) EvaluationFile(rounds int, suite string) (string, error) {
	if f == nil {
		return "", nil
	}
	path := filepath.Join(f.Dir, evaluationsDir, fmt.Sprintf("round-%05d-%s.jsonl", rounds, url.PathEscape(suite)))
	err := files.MakeFolder(filepath.Dir(path))
	if err == nil {
		err = os.Remove(path)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("train: run folder: %w", err)
	}
	return path, nil
}

// WriteRollouts writes the file of round n, from 1. It is written at the end of the
// round, since figures of training are known only after the optimizer steps.
func (f *Folder) WriteRollouts(n int, lines iter.Seq[RolloutLine]) error {
	if f == nil {
		return nil
	}
	path := filepath.Join(f.Dir, rolloutsDir, fmt.Sprintf("round-%05d.jsonl", n))
	if err := files.MakeFolder(filepath.Dir(path)); err != nil {
		return fmt.Errorf("train: run folder: %w", err)
	}
	return files.WriteFile(path, func(w io.Writer) error {
		enc := json.NewEncoder(w)
		enc.SetEscapeHTML(false)
		for line := range lines {
			if err := enc.Encode(line); err != nil {
				return err
			}
		}
		return nil
	})
}
