package rl

import (
	"fmt"
	"math"
	"reflect"
	"testing"

	"onering/objectives"
	"onering/train/metrics"
	"onering/train/rundir"
)

// fill sets every field of v to a value that is not zero and differs from the others.
func fill(v reflect.Value, n *int) {
	*n++
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32:
		v.SetInt(int64(*n))
	case reflect.Float32, reflect.Float64:
		v.SetFloat(float64(*n) + 0.5)
	case reflect.String:
		v.SetString(fmt.Sprint("text ", *n))
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fallthrough
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i), n)
		}
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, n)
		fill(value, n)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), n)
		}
	case reflect.Pointer: // a trajectory's greedy one, which only advantages need
	default:
		panic(v.Type().String())
	}
}

// A checkpoint keeps every field of a round's types except those named here, which no
// code reads after the sampling. So a new field is either stored or named here.
func TestRoundIsKept(t *testing.T) {
	for _, rescored := range []bool{false, true} {
		n := 0
		made := func(v any) { fill(reflect.ValueOf(v).Elem(), &n) }
		was := &round{
			rollouts: make([]rollout, 3), greedy: make([]rollout, 2), trajectories: make([]objectives.Trajectory, 3), updates: make([]rundir.Update, 3), rescored: rescored,
		}
		made(&was.groups)
		made(&was.equalGroups)
		made(&was.trained)
		made(&was.gap)
		made(&was.stats)
		was.steps = []metrics.Record{metrics.Record{}.With("step", 1).With("loss", math.Pi)}
		for i := range was.rollouts {
			made(&was.rollouts[i])
			made(&was.trajectories[i])
			made(&was.updates[i])
			x, y := &was.rollouts[i], &was.trajectories[i]
			y.LogProb, y.Entropy = x.LogProb, x.Entropy
			y.SampleLogProb, y.IDs = x.LogProb, x.Response
			y.SumPiSquared, y.Role, y.Episode = nil, "", "" // of which a run has none
			y.Group, y.Turns = x.Problem, x.turns()
			// Only advantages need the parts of the reward, and they are computed by then.
			y.Components, x.Score.Weights = nil, nil
			x.Earlier = nil // By then these are rollouts of their own.
			if !rescored {
				y.OldLogProb = x.LogProb
			}
			was.sequences = append(was.sequences, x.sequence())
		}
		for i := range was.greedy {
			made(&was.greedy[i])
			was.greedy[i].Score.Weights, was.greedy[i].Earlier = nil, nil
		}
		is := roundOf(was.state(), rescored)
		if !reflect.DeepEqual(was, is) {
			t.Errorf("rescored %v: the round\n%+v\ncomes back as\n%+v", rescored, was, is)
		}
	}
}
