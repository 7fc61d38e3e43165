package sft

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"onering/data"
	"onering/runtime/runtimetest"
	"onering/train"
	"onering/train/ranks"
)

// comparisons are preferences for the embedded model: the sum, and the sum plus one.
func comparisons(n int) (list []data.Demonstration) {
	for i := range n {
		d := func(answer int) data.Demonstration {
			return data.Demonstration{Prompt: fmt.Sprintf("%d+%d=", i, 3*i), Response: fmt.Sprint(answer), Place: fmt.Sprint("sum ", i)}
		}
		list = append(list, d(4*i), d(4*i+1))
	}
	return list
}

func preferences(dir, loss string) Config {
	c := DefaultPreferences(data.Arithmetic)
	c.Data.Train, c.Output.Dir, c.Preference.Loss = "comparisons", dir, loss
	c.Train.Epochs, c.Train.BatchSize, c.Train.EvalEvery, c.Train.SaveSteps, c.Data.HeldOut = 2, 16, 3, 4, 0.1
	c.Optimizer.Warmup, c.Optimizer.LearningRate = 2, 1e-3
	return c
}

// runPreferences trains with a Trainer of its own.
func runPreferences(ctx context.Context, t *testing.T, c Config, r *recorder, resume bool) (Summary, error) {
	t.Helper()
	policy := openPolicy(t, runtimetest.Test(t), c)
	trainer, err := NewOn(c, train.Setup{Ranks: ranks.Alone(), Policy: policy, Log: quiet, Observer: r}, comparisons(64), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer trainer.Close()
	return trainer.Run(ctx, resume)
}

// TestPreferences: with each loss the policy learns to prefer the chosen responses, also of
// held-out preferences, and a run that is interrupted ends as one without interruption.
func TestPreferences(t *testing.T) {
	for _, loss := range []string{"dpo", "ipo", "simpo", "orpo", "kto"} {
		dir := t.TempDir()
		var whole recorder
		c := preferences(filepath.Join(dir, "whole"), loss)
		end, err := runPreferences(context.Background(), t, c, &whole, false)
		if err != nil {
			t.Fatal(loss, ": ", err)
		}
		last := whole.records[len(whole.records)-1]
		if end.Steps != 8 || end.Demonstrations != 58 || !(end.HeldOut[1] < end.HeldOut[0]) || last.Float("accuracy") < 0.8 || last.Float("margin") <= 0 || !c.Finished() {
			t.Errorf("%s: the run came to %+v, %v", loss, end, last)
		}
		if first := whole.records[0]; c.Preference.usesReference() && (first.Float("margin") != 0 || first.Get("kind") != "eval") {
			t.Errorf("%s: the first policy is ahead of itself: %v", loss, first)
		}
		want := filesOf(t, c.Output.Dir)
		for _, after := range []int{1, 5} {
			c := preferences(filepath.Join(dir, fmt.Sprint("stopped-", after)), loss)
			ctx, cancel := context.WithCancel(context.Background())
			if _, err := runPreferences(ctx, t, c, &recorder{cancel: cancel, after: after}, false); !errors.Is(err, context.Canceled) {
				t.Fatalf("%s: stopped after step %d: %v", loss, after, err)
			}
			again, err := runPreferences(context.Background(), t, c, &recorder{}, true)
			if err != nil {
				t.Fatal(loss, ": ", err)
			}
			for name, text := range filesOf(t, c.Output.Dir) {
				if text != want[name] {
					t.Errorf("%s: stopped after step %d: %s differs", loss, after, name)
				}
			}
			if !slices.Equal(again.Loss, end.Loss) || !slices.Equal(again.HeldOut, end.HeldOut) {
				t.Errorf("%s: stopped after step %d: %+v, want %+v", loss, after, again, end)
			}
		}
	}
}

// TestPreferenceSettings: a run on preferences is not resumed with another loss.
func TestPreferenceSettings(t *testing.T) {
	c := preferences(filepath.Join(t.TempDir(), "run"), "dpo")
	ctx, cancel := context.WithCancel(context.Background())
	if _, err := runPreferences(ctx, t, c, &recorder{cancel: cancel, after: 5}, false); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	c.Preference.Beta = 0.2
	if _, err := runPreferences(context.Background(), t, c, &recorder{}, true); err == nil || !strings.Contains(err.Error(), "preference.beta was 0.1 and is 0.2") {
		t.Errorf("resumed with another beta: %v", err)
	}
	c.Preference.Loss = "ppo"
	if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "preference.loss") {
		t.Errorf("a loss that there is not: %v", err)
	}
}

// TestMismatch: the prompts of a preference get the responses of the one before.
func TestMismatch(t *testing.T) {
	example := func(prompt, response int32) Example {
		return Example{IDs: []int32{prompt, prompt, response}, Learn: []bool{false, false, true}}
	}
	s := &set{Examples: []Example{example(1, 2), example(1, 3), example(4, 5), example(4, 6)}}
	addMismatched(s, 2)
	var got []string
	for _, x := range s.Examples {
		got = append(got, fmt.Sprint(x.IDs, x.Learn[2]))
	}
	if fmt.Sprint(got) != "[[1 1 2] true [1 1 3] true [1 1 5] true [1 1 6] true [4 4 5] true [4 4 6] true [4 4 2] true [4 4 3] true]" {
		t.Error(got)
	}
}

// TestSinglePreferences: labeled responses of which no two answer one prompt are learned by kto, with each prompt beside the response of the row before; other losses refuse them.
func TestSinglePreferences(t *testing.T) {
	list := comparisons(32)
	for i := range list {
		list[i].Good = new(i%2 == 0)
	}
	c := preferences(filepath.Join(t.TempDir(), "run"), "kto")
	policy := openPolicy(t, runtimetest.Test(t), c)
	var r recorder
	setup := train.Setup{Ranks: ranks.Alone(), Policy: policy, Log: quiet, Observer: &r}
	trainer, err := NewOn(c, setup, list, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer trainer.Close()
	end, err := trainer.Run(context.Background(), false)
	last := r.records[len(r.records)-2] // the last step's, before the evaluation
	if err != nil || end.Demonstrations != 58 || len(end.HeldOut) != 2 || !(end.Loss[1] < end.Loss[0]) || last.Float("accuracy") <= 0.5 || last.Float("margin") <= 0 {
		t.Errorf("the run came to %+v, %v, %v", end, last, err)
	}
	c.Preference.Loss = "dpo"
	if _, err := NewOn(c, setup, list, nil); err == nil || !strings.Contains(err.Error(), "which --loss kto learns from; dpo compares") {
		t.Errorf("dpo of single responses: %v", err)
	}
	s := &set{Examples: []Example{{IDs: []int32{1, 2}, Learn: []bool{false, true}}, {IDs: []int32{3, 4}, Learn: []bool{false, true}, bad: true}}}
	if addMismatched(s, 1); fmt.Sprint(s.Examples[1].IDs, s.Examples[3].IDs) != "[1 4] [3 2]" {
		t.Errorf("mismatched: %v", s.Examples)
	}
}
