package objectives_test

import (
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"onering/objectives"
	"onering/objectives/means"
)

// powerMeanFolders returns testdata/powermean and, where it exists, the shared folder
// with larger batches.
func powerMeanFolders(t *testing.T) []string {
	t.Helper()
	folders := []string{filepath.Join("testdata", "powermean")}
	if shared := filepath.Join("..", "..", "shared", "goldens", "powermean"); exists(shared) {
		return append(folders, shared)
	}
	t.Log("only testdata/powermean is checked: there is no ../shared/goldens/powermean")
	return folders
}

// powerMeanSettings turns the spec of a method into the name and the settings of an
// objective. It reports false for methods that onering does not have.
func powerMeanSettings(spec map[string]any) (name string, set keys, ok bool) {
	name, set = spec["algo"].(string), keys{}
	text := func(key string) string { s, _ := spec[key].(string); return s }
	copyTo := func(keys ...string) {
		for i := 0; i < len(keys); i += 2 {
			if x, there := spec[keys[i]]; there {
				set[keys[i+1]] = x
			}
		}
	}
	copyTo("beta", "kl_beta")
	if kind := map[string]string{"holder": "std_sample_1e-8", "pmpo": "centered", "p3o": "std_sample_1e-8", "apmpo": "std_sample_1e-8"}[name]; text("advantage") != kind {
		set["advantage"] = map[string]string{"centered": "centered", "std_sample_1e-8": "standardized"}[text("advantage")]
	}
	rule := text("p_rule")
	switch name {
	case "holder":
		copyTo("p", "p", "eps_low", "clip_low", "eps_high", "clip_high")
		set["clip_mode"] = map[string]string{"none": "none", "ratio": "token", "both": "both"}[text("clip")]
		if text("clip") == "none" && spec["outer"] == true {
			set["clip_mode"] = "sequence"
		}
		shape, way, _ := strings.Cut(rule, "_")
		set["p_rule"] = shape
		if way == "asc" {
			copyTo("p_min", "p_first", "p_max", "p_last")
		} else {
			copyTo("p_max", "p_first", "p_min", "p_last")
		}
	case "pmpo":
		copyTo("p", "p", "p_min", "p_min", "p_max", "p_max")
		if mode, there := map[string]string{"none": "none", "seq": "sequence"}[text("clip")]; there {
			set["clip_mode"] = mode
		}
		if norm, there := map[string]string{"sum": "sum", "n_times": "count-times"}[text("norm")]; there {
			set["norm"] = norm
		}
		rule, fine := strings.CutSuffix(rule, "_fine")
		if fine {
			set["tolerance"] = 1e-12
		}
		if rule == "signed" {
			rule, set["target"] = "ess", "attainable"
		}
		if set["p_rule"] = rule; rule == "direct_range" {
			return name, nil, false
		}
	case "p3o":
		copyTo("pull", "pull")
	case "apmpo":
	default:
		return name, nil, false
	}
	return name, set, spec["drop_truncated"] != true // which is train.truncated
}

// TestPowerMeanGoldens compares holder, p3o and pmpo with exponents below 0 with batches
// that PyTorch and NumPy computed; ../shared/goldens/powermean has their formulas.
func TestPowerMeanGoldens(t *testing.T) {
	for _, folder := range powerMeanFolders(t) {
		for _, name := range []string{"tiny", "mixed", "shaped", "onpolicy", "extreme", "limits"} {
			file := filepath.Join(folder, name+".json")
			if !exists(file) && strings.HasPrefix(folder, "testdata") {
				continue
			}
			var b goldenBatch
			readJSON(t, file, &b)
			seen := 0
			for _, method := range slices.Sorted(maps.Keys(b.Methods)) {
				m := b.Methods[method]
				objective, set, ok := powerMeanSettings(m.Spec)
				if !ok {
					continue
				}
				seen++
				t.Run(filepath.Base(filepath.Dir(folder))+"/"+name+"/"+method, func(t *testing.T) {
					o := makeObjective(t, objective, set)
					out, err := objectives.Evaluate(o, b.groups(m), b.Schedule[0], b.Schedule[1])
					if err != nil {
						t.Fatal(err)
					}
					scale := 0.0
					for _, x := range m.Contributions {
						scale += math.Abs(x)
					}
					if math.Abs(out.Loss-m.Loss) > 1e-10*scale {
						t.Errorf("loss = %v, want %v", out.Loss, m.Loss)
					}
					compareRows(t, out, b, m, 1e-9)
				})
			}
			if seen < 60 {
				t.Errorf("%s: %d methods were compared", file, seen)
			}
		}
	}
}

// TestMeanGoldens compares the mean of any order with values of 60 digits.
func TestMeanGoldens(t *testing.T) {
	for _, folder := range powerMeanFolders(t) {
		var golden struct {
			Vectors []struct {
				Z, Softmax []float64
				P          float64
				LogMean    float64 `json:"log_mean"`
			}
		}
		readJSON(t, filepath.Join(folder, "means.json"), &golden)
		if len(golden.Vectors) < 50 {
			t.Fatalf("%s: %d vectors", folder, len(golden.Vectors))
		}
		for i, v := range golden.Vectors {
			g := make([]float64, len(v.Z))
			if l := means.LogPowerMean(v.Z, v.P, g); !close(l, v.LogMean, 1e-13) {
				t.Errorf("%s, vector %d: log M_%v = %v, want %v", folder, i, v.P, l, v.LogMean)
			}
			for j, want := range v.Softmax {
				if !close(g[j], want, 1e-9) {
					t.Errorf("%s, vector %d: softmax of %v at %d = %v, want %v", folder, i, v.P, j, g[j], want)
				}
			}
		}
	}
}

// TestSignedSolverGoldens checks D40 and D41, over ranges with exponents below 0.
func TestSignedSolverGoldens(t *testing.T) {
	for _, folder := range powerMeanFolders(t) {
		var golden struct {
			Vectors []struct {
				Z          []float64
				F, Eta     float64
				PMin       float64 `json:"p_min"`
				PMax       float64 `json:"p_max"`
				P10        float64 `json:"p_10"`
				PFine      float64 `json:"p_fine"`
				Goal       float64 `json:"signed_goal"`
				Signed10   float64 `json:"signed_p_10"`
				SignedFine float64 `json:"signed_p_fine"`
			}
		}
		readJSON(t, filepath.Join(folder, "solver.json"), &golden)
		below := 0
		for i, v := range golden.Vectors {
			s := means.Solver{PMin: v.PMin, PMax: v.PMax, Bisections: 10}
			check := func(name string, got, want, tolerance float64) {
				if math.Abs(got-want) > tolerance {
					t.Errorf("%s, vector %d: %s = %v, want %v", folder, i, name, got, want)
				}
			}
			p, eta := s.SolveAttainable(v.Z, v.F)
			check("p", s.Solve(v.Z, v.Eta), v.P10, 1e-14)
			check("signed p", p, v.Signed10, 1e-14)
			check("eta", eta, 1-math.Abs(v.Goal), 1e-13)
			s.Tolerance = 1e-12
			p, _ = s.SolveAttainable(v.Z, v.F)
			check("fine p", s.Solve(v.Z, v.Eta), v.PFine, 1e-9)
			check("fine signed p", p, v.SignedFine, 1e-9)
			if v.PMin < 0 {
				below++
			}
		}
		if below < 20 {
			t.Errorf("%s: %d vectors with exponents below 0", folder, below)
		}
	}
}

// TestScheduleGoldens compares the schedules of p with those of HölderPO's code.
func TestScheduleGoldens(t *testing.T) {
	for _, folder := range powerMeanFolders(t) {
		var golden struct {
			Vectors []struct {
				Schedule string
				PMin     float64 `json:"p_min"`
				PMax     float64 `json:"p_max"`
				Steps    int
				Power    float64
				Step     []int
				P        []float64
			}
		}
		readJSON(t, filepath.Join(folder, "schedules.json"), &golden)
		seen := 0
		for _, v := range golden.Vectors {
			shape, way, _ := strings.Cut(v.Schedule, "_")
			if v.Power != 2 && shape == "square" {
				continue // The other powers of HölderPO's code have no table.
			}
			first, last := v.PMax, v.PMin
			if way == "asc" {
				first, last = last, first
			}
			for i, step := range v.Step {
				seen++
				if p := (objectives.Batch{Step: step, Steps: v.Steps}).Schedule(shape, first, last); math.Abs(p-v.P[i]) > 1e-14 {
					t.Errorf("%s from %v to %v at %d of %d: %v, want %v", v.Schedule, first, last, step, v.Steps, p, v.P[i])
				}
			}
		}
		if p := (objectives.Batch{Step: 3}).Schedule("cube", 2, -2); p != 2 || seen < 100 {
			t.Errorf("%d values were compared; without a known end p = %v, want 2", seen, p)
		}
	}
}

// TestHarmonicMean: hmpo of GMPO's repository is a run file of pmpo (D45), and holder with
// p = 1 that clips tokens is grpo (D34).
func TestHarmonicMean(t *testing.T) {
	b := objectives.Batch{Trajectories: []objectives.Trajectory{
		{Advantage: 0.5, LogProb: []float64{-1, -2, -0.2}, OldLogProb: []float64{-1.1, -1.7, -0.3}},
		{Advantage: -0.7, LogProb: []float64{-3, -0.5}, OldLogProb: []float64{-2, -0.6}},
	}}
	holder := makeObjective(t, "holder", keys{"p_rule": "fixed", "p": 1.0, "clip_mode": "token"})
	grpo := makeObjective(t, "grpo", nil)
	if x, y := holder.Loss(b, b), grpo.Loss(b, b); !close(x, y, 1e-15) {
		t.Errorf("holder with p = 1 has the loss %v, grpo %v", x, y)
	}
	harmonic := makeObjective(t, "pmpo", keys{"p_rule": "fixed", "p": -1.0, "clip_mode": "none", "advantage": "standardized"})
	want := 0.0
	for _, x := range b.Trajectories {
		sum := 0.0
		for j := range x.LogProb {
			sum += math.Exp(x.OldLogProb[j] - x.LogProb[j])
		}
		want -= x.Advantage / 2 * float64(len(x.LogProb)) / sum
	}
	if x := harmonic.Loss(b, b); !close(x, want, 1e-15) {
		t.Errorf("the harmonic mean has the loss %v, want %v", x, want)
	}
}
