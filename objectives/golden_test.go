package objectives_test

import (
	"encoding"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"onering/internal/settings"
	"onering/objectives"
	_ "onering/objectives/all"
	"onering/objectives/dapo"
	"onering/objectives/means"
	"onering/objectives/pmpo"
)

// goldenFolders returns the folders of reference vectors: testdata always, and the shared
// folder and the folders in ONERING_GOLDENS where they exist.
func goldenFolders(t *testing.T) []string {
	t.Helper()
	folders := []string{"testdata"}
	if dir := os.Getenv("ONERING_GOLDENS"); dir != "" {
		folders = append(folders, dir)
	}
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for !exists(filepath.Join(dir, "go.mod")) {
		if dir == filepath.Dir(dir) {
			t.Fatal("no go.mod above the test")
		}
		dir = filepath.Dir(dir)
	}
	shared := filepath.Join(dir, "..", "shared", "goldens", "objectives")
	if exists(shared) {
		return append(folders, shared)
	}
	t.Logf("only testdata is checked: there is no %s", shared)
	return folders
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

func readJSON(t *testing.T, name string, into any) {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// A goldenBatch is one of the files tiny, mixed, shaped, onpolicy, extreme.
type goldenBatch struct {
	Groups       [][]int
	Rewards      []float64
	ConstLen     float64   `json:"const_len"`
	LengthPrior  []float64 `json:"ema_length_prior"`
	EntropyPrior []float64 `json:"ema_entropy_prior"`
	Schedule     [2]int    `json:"schedule_t_T"`
	Inputs       struct {
		Old            [][]float64 `json:"logp_old"`
		New            [][]float64 `json:"logp_new"`
		Ref            [][]float64 `json:"logp_ref"`
		Entropy        [][]float64
		TokenAdvantage [][]float64 `json:"token_advantage"`
	}
	Advantages map[string][]float64
	Methods    map[string]goldenMethod
}

type goldenMethod struct {
	Spec          map[string]any
	Loss          float64
	W             [][]float64
	Contributions []float64
	P             []float64
	PFine         []float64 `json:"p_fine"`
	ESS           []float64
	Eta           []float64
	F             []float64
	R             []float64 `json:"r_hat"`
	LogR          []float64 `json:"log_r_hat"`
	Clipped       []float64 `json:"clipped_frac"`
	EMA           *struct {
		MeanAfter     float64 `json:"mu_after"`
		VarianceAfter float64 `json:"var_after"`
	}
}

// objective turns a method's spec into an objective and its settings. A setting
// that the spec does not name keeps its default, so that defaults are tested too.
func (m goldenMethod) objective(t *testing.T, name string, b goldenBatch) objectives.Objective {
	t.Helper()
	set := map[string]any{}
	number := func(key, from string) {
		if x, ok := m.Spec[from]; ok {
			set[key] = x
		}
	}
	registered := m.Spec["algo"].(string)
	switch registered {
	case "grpo":
		switch {
		case strings.HasPrefix(name, "dr_grpo"):
			registered = "drgrpo"
		case strings.HasPrefix(name, "dapo"):
			registered = "dapo"
		default:
			aggregate := map[string]string{"seq_mean_token_mean": "sequence-mean", "token_mean": "token-mean", "constant": "constant"}[m.Spec["agg"].(string)]
			if aggregate != "sequence-mean" {
				set["aggregate"] = aggregate
			}
		}
		if m.Spec["agg"] == "constant" {
			set["constant_length"] = b.ConstLen
		}
	case "gpg":
		if m.Spec["alpha"] == true {
			set["rescale"] = true
		}
	case "gspo", "gspo_token":
		if registered == "gspo_token" {
			registered, set["token_level"] = "gspo", true
		}
		if name != "gspo" {
			number("clip_low", "eps_low")
			number("clip_high", "eps_high")
		}
	case "gmpo", "pmpo":
		switch m.Spec["clip"] {
		case "none":
			set["clip_mode"] = "none"
		case "seq":
			set["clip_mode"] = "sequence"
		case "printed":
			set["clip_form"] = "printed"
		}
		if norm, ok := m.Spec["norm"]; ok {
			set["norm"] = map[any]string{"sum": "sum", "n_times": "count-times"}[norm]
		}
		switch rule := m.Spec["p_rule"]; rule {
		case "ess_fine":
			set["tolerance"] = 1e-12
		case "length_ema", "entropy_ema":
			set["p_rule"] = strings.TrimSuffix(rule.(string), "_ema")
		case "fixed", "direct", "cosine":
			set["p_rule"] = rule
		}
		number("p", "p")
		number("p_max", "p_max")
		number("eps_ess", "eps_ess")
	}
	number("kl_beta", "beta")

	o, err := objectives.New(registered)
	if err != nil {
		t.Fatal(err)
	}
	standard := map[string]string{
		"grpo": "std_sample_1e-8", "dapo": "std_sample_1e-8", "gspo": "std_sample_1e-8", "gmpo": "std_sample_1e-8",
	}[registered]
	if standard == "" {
		standard = "centered"
	}
	if advantage := m.Spec["advantage"].(string); advantage != standard {
		kind, rest, _ := strings.Cut(advantage, "_")
		set["advantage"] = map[string]string{"centered": "centered", "std": "standardized", "rloo": "rloo"}[kind]
		switch rest {
		case "sample_1e-4":
			set["advantage_eps"] = 1e-4
		case "pop_1e-8":
			set["advantage_std"] = "population"
		}
	}
	configure(t, o, set)
	return o
}

// configure sets the fields of o that carry the toml names of set, and validates.
func configure(t testing.TB, o objectives.Objective, set map[string]any) {
	t.Helper()
	assign(t, o, set)
	if v, ok := o.(interface{ Validate() error }); ok {
		if err := v.Validate(); err != nil {
			t.Fatal(err)
		}
	}
}

func assign(t testing.TB, o objectives.Objective, set map[string]any) {
	t.Helper()
	fields := fieldsOf(o)
	for key, value := range set {
		f, ok := fields[key]
		if !ok {
			t.Fatalf("%T has no key %q", o, key)
		}
		if w, ok := f.Addr().Interface().(interface{ UnmarshalTOML(any) error }); ok {
			if err := w.UnmarshalTOML(value); err != nil {
				t.Fatalf("%s: %v", key, err)
			}
			continue
		}
		switch v := value.(type) {
		case []any: // of texts
			list := []string{}
			for _, x := range v {
				list = append(list, x.(string))
			}
			value = list
		case string:
			if f.Kind() == reflect.Slice {
				value = []string{v}
			}
		}
		v := reflect.ValueOf(value)
		if f.Kind() == reflect.Pointer {
			p := reflect.New(f.Type().Elem())
			p.Elem().Set(v.Convert(f.Type().Elem()))
			v = p
		}
		f.Set(v.Convert(f.Type()))
	}
}

// fieldsOf returns the settings of o by their names, and by their keys where these differ.
func fieldsOf(o objectives.Objective) map[string]reflect.Value {
	fields, called := map[string]reflect.Value{}, map[string]string{}
	if r, ok := o.(interface{ Called() map[string]string }); ok {
		called = r.Called()
	}
	for _, f := range settings.Fields(o) {
		fields[f.Key] = f.Value
		for key, name := range called {
			if name == f.Key {
				fields[key] = f.Value
			}
		}
	}
	return fields
}

// groups returns the trajectories of b as method m reads them.
func (b goldenBatch) groups(m goldenMethod) [][]objectives.Trajectory {
	var groups [][]objectives.Trajectory
	for _, g := range b.Groups {
		var group []objectives.Trajectory
		for _, i := range g {
			x := objectives.Trajectory{
				Reward: b.Rewards[i], LogProb: b.Inputs.New[i], OldLogProb: b.Inputs.Old[i],
				RefLogProb: b.Inputs.Ref[i], Entropy: b.Inputs.Entropy[i],
			}
			if m.Spec["token_adv"] == true {
				x.TokenAdvantage = b.Inputs.TokenAdvantage[i]
			}
			group = append(group, x)
		}
		groups = append(groups, group)
	}
	return groups
}

// restore gives o the moving averages that m starts from.
func (b goldenBatch) restore(t *testing.T, o objectives.Objective, m goldenMethod) {
	t.Helper()
	prior := map[any][]float64{"length_ema": b.LengthPrior, "entropy_ema": b.EntropyPrior}[m.Spec["p_rule"]]
	if prior == nil {
		return
	}
	if err := o.(encoding.TextUnmarshaler).UnmarshalText(fmt.Appendf(nil, `{"mean":%v,"variance":%v}`, prior[0], prior[1])); err != nil {
		t.Fatal(err)
	}
}

// TestGoldens evaluates every method on every batch as `onering weights` does.
func TestGoldens(t *testing.T) {
	const tolerance = 1e-9
	for _, folder := range goldenFolders(t) {
		for _, name := range []string{"tiny", "mixed", "shaped", "onpolicy", "extreme"} {
			file := filepath.Join(folder, name+".json")
			if !exists(file) && folder == "testdata" {
				continue
			}
			var b goldenBatch
			readJSON(t, file, &b)
			if len(b.Methods) != 47 {
				t.Fatalf("%s: %d methods, want 47", file, len(b.Methods))
			}
			for _, method := range slices.Sorted(maps.Keys(b.Methods)) {
				m := b.Methods[method]
				t.Run(filepath.Base(folder)+"/"+name+"/"+method, func(t *testing.T) {
					o := m.objective(t, method, b)
					b.restore(t, o, m)
					out, err := objectives.Evaluate(o, b.groups(m), b.Schedule[0], b.Schedule[1])
					if err != nil {
						t.Fatal(err)
					}
					if !close(out.Loss, m.Loss, tolerance) {
						t.Errorf("loss = %v, want %v", out.Loss, m.Loss)
					}
					compareRows(t, out, b, m, tolerance)
					compareState(t, o, m, tolerance)
				})
			}
		}
	}
}

func compareRows(t *testing.T, out objectives.Result, b goldenBatch, m goldenMethod, tolerance float64) {
	t.Helper()
	for g, group := range b.Groups {
		for k, i := range group {
			got := out.Groups[g][k]
			check := func(name string, x *float64, want []float64) {
				if want == nil {
					return // not in the reference
				}
				if x == nil {
					t.Errorf("trajectory %d: no %s, want %v", i, name, want[i])
				} else if !close(*x, want[i], tolerance) {
					t.Errorf("trajectory %d: %s = %v, want %v", i, name, *x, want[i])
				}
			}
			check("advantage", &got.Advantage, b.Advantages[m.Spec["advantage"].(string)])
			check("p", got.P, m.P)
			check("ess", got.ESS, m.ESS)
			check("target_ess", got.TargetESS, m.Eta)
			check("clip_fraction", got.ClipFraction, m.F)
			check("ratio", got.Ratio, m.R)
			check("log_ratio", got.LogRatio, m.LogR)
			check("clipped", got.Clipped, m.Clipped)
			scale := 0.0
			for _, x := range m.W[i] {
				scale = max(scale, math.Abs(x))
			}
			for j, want := range m.W[i] {
				if x := got.Weights[j]; math.Abs(x-want) > tolerance*scale || !close(x, want, tolerance) {
					t.Errorf("trajectory %d, token %d: w = %v, want %v", i, j, x, want)
				}
			}
		}
	}
}

func compareState(t *testing.T, o objectives.Objective, m goldenMethod, tolerance float64) {
	t.Helper()
	if m.EMA == nil {
		return
	}
	text, err := o.(encoding.TextMarshaler).MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	var state struct{ Mean, Variance float64 }
	if err := json.Unmarshal(text, &state); err != nil {
		t.Fatal(err)
	}
	if !close(state.Mean, m.EMA.MeanAfter, tolerance) || !close(state.Variance, m.EMA.VarianceAfter, tolerance) {
		t.Errorf("state = %+v, want %+v", state, *m.EMA)
	}
}

// close compares relative to want, and allows 1e-13 for the rounding of numbers that
// should be 0. (The reference's log((sum e^pz)/n)/p at p = 0.01 is no better.)
func close(x, want, tolerance float64) bool {
	return math.Abs(x-want) <= tolerance*math.Abs(want)+1e-13
}

func TestSolverGoldens(t *testing.T) {
	for _, folder := range goldenFolders(t) {
		var golden struct {
			Vectors []struct {
				Z      []float64
				Eta    float64
				PMin   float64 `json:"p_min"`
				PMax   float64 `json:"p_max"`
				P10    float64 `json:"p_10"`
				PFine  float64 `json:"p_fine"`
				AtMin  float64 `json:"ess_at_p_min"`
				AtMax  float64 `json:"ess_at_p_max"`
				AtFine float64 `json:"ess_at_p_fine"`
			}
		}
		readJSON(t, filepath.Join(folder, "solver.json"), &golden)
		if len(golden.Vectors) < 50 {
			t.Fatalf("%s: %d vectors", folder, len(golden.Vectors))
		}
		for i, v := range golden.Vectors {
			s := means.Solver{PMin: v.PMin, PMax: v.PMax, Bisections: 10}
			if p := s.Solve(v.Z, v.Eta); math.Abs(p-v.P10) > 1e-14 {
				t.Errorf("%s, vector %d: p = %v, want %v", folder, i, p, v.P10)
			}
			s.Tolerance = 1e-12
			if p := s.Solve(v.Z, v.Eta); math.Abs(p-v.PFine) > 1e-9 {
				t.Errorf("%s, vector %d: fine p = %v, want %v", folder, i, p, v.PFine)
			}
			for _, at := range [][2]float64{{v.PMin, v.AtMin}, {v.PMax, v.AtMax}, {v.PFine, v.AtFine}} {
				if x := means.ESS(v.Z, at[0]); !close(x, at[1], 1e-13) {
					t.Errorf("%s, vector %d: ESS(%v) = %v, want %v", folder, i, at[0], x, at[1])
				}
			}
		}
	}
}

// TestHeuristicGoldens follows the moving averages over five batches each, and
// checks the cosine schedule and the overlong punishment.
func TestHeuristicGoldens(t *testing.T) {
	type steps struct {
		Alpha   float64
		Initial struct {
			Prior    bool
			Mean     float64 `json:"mu"`
			Variance float64 `json:"var"`
		}
		Steps []struct {
			X, P          []float64
			MeanAfter     float64 `json:"mu_after"`
			VarianceAfter float64 `json:"var_after"`
		}
	}
	for _, folder := range goldenFolders(t) {
		var file map[string]json.RawMessage
		readJSON(t, filepath.Join(folder, "heuristics.json"), &file)
		seen := 0
		for name, raw := range file {
			decode := func(into any) {
				if err := json.Unmarshal(raw, into); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				seen++
			}
			switch {
			case strings.Contains(name, "_ema_"):
				var golden steps
				decode(&golden)
				o := newPMPO(t)
				o.PRule, _, _ = strings.Cut(name, "_")
				o.EMAAlpha = golden.Alpha
				if golden.Initial.Prior {
					state := fmt.Sprintf(`{"mean":%v,"variance":%v}`, golden.Initial.Mean, golden.Initial.Variance)
					if err := o.UnmarshalText([]byte(state)); err != nil {
						t.Fatal(err)
					}
				}
				for s, step := range golden.Steps {
					var b objectives.Batch
					for _, x := range step.X {
						b.Trajectories = append(b.Trajectories, withStatistic(o.PRule, x))
					}
					for i, d := range o.Diagnose(b) {
						if !close(*d.P, step.P[i], 1e-10) {
							t.Errorf("%s, step %d, trajectory %d: p = %v, want %v", name, s, i, *d.P, step.P[i])
						}
					}
					o.Observe(b)
					text, err := o.MarshalText()
					if err != nil {
						t.Fatal(err)
					}
					var state struct{ Mean, Variance float64 }
					if err := json.Unmarshal(text, &state); err != nil {
						t.Fatal(err)
					}
					if !close(state.Mean, step.MeanAfter, 1e-12) || !close(state.Variance, step.VarianceAfter, 1e-12) {
						t.Errorf("%s, step %d: state %s, want %v, %v", name, s, text, step.MeanAfter, step.VarianceAfter)
					}
				}
			case name == "cosine":
				var golden struct {
					T     []int     `json:"t"`
					Steps int       `json:"T"`
					P     []float64 `json:"p"`
				}
				// encoding/json matches keys without regard to case unless one is exact.
				decode(&golden)
				o := newPMPO(t)
				o.PRule = "cosine"
				for i, step := range golden.T {
					b := objectives.Batch{Step: step, Steps: golden.Steps, Trajectories: []objectives.Trajectory{withStatistic("length", 3)}}
					if p := *o.Diagnose(b)[0].P; !close(p, golden.P[i], 1e-14) {
						t.Errorf("cosine at %d of %d: p = %v, want %v", step, golden.Steps, p, golden.P[i])
					}
				}
			case strings.HasPrefix(name, "overlong_"):
				var golden struct {
					Limit  int `json:"L_max"`
					Cache  int `json:"L_cache"`
					Length []int
					Reward []float64
				}
				decode(&golden)
				o, err := objectives.New("dapo")
				if err != nil {
					t.Fatal(err)
				}
				o.(*dapo.DAPO).OverlongLength, o.(*dapo.DAPO).OverlongCache = golden.Limit, golden.Cache
				for i, n := range golden.Length {
					shaped := o.(objectives.Shaper).Shape(objectives.Trajectory{Reward: 1, LogProb: make([]float64, n)})
					if !close(shaped, 1+golden.Reward[i], 1e-14) {
						t.Errorf("%s: length %d: shaped reward %v, want %v", name, n, shaped, 1+golden.Reward[i])
					}
				}
			}
		}
		if seen != 10 {
			t.Errorf("%s: %d parts of heuristics.json were read, want 10", folder, seen)
		}
	}
}

func newPMPO(t testing.TB) *pmpo.PMPO {
	t.Helper()
	o, err := objectives.New("pmpo")
	if err != nil {
		t.Fatal(err)
	}
	return o.(*pmpo.PMPO)
}

// withStatistic returns a response of length x, or of mean entropy x.
func withStatistic(rule string, x float64) objectives.Trajectory {
	n := 1
	if rule == "length" {
		n = int(x)
	}
	return objectives.Trajectory{
		Advantage: 1, LogProb: make([]float64, n), OldLogProb: make([]float64, n), Entropy: []float64{x},
	}
}
