package settings

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// idleConfig has settings of which some count only beside others.
type idleConfig struct {
	Rate struct {
		Shape string  `toml:"shape"`
		Floor float64 `toml:"floor" needs:"shape!=constant" flag:"floor" help:"the end"`
		Steps int     `toml:"steps" needs:"shape=linear shape=cosine,extra.on=true"`
		Other int     `toml:"other" needs:"unknown=1"`
	} `toml:"rate"`
	Extra struct {
		On    bool     `toml:"on" flag:"extra"`
		Depth int      `toml:"depth"`
		Names []string `toml:"names"`
		Of    int      `toml:"of" needs:"names!="`
	} `toml:"extra" needs:"on=true"`
}

// TestIdle: a setting is idle if it was given and none of its conditions holds.
func TestIdle(t *testing.T) {
	for _, x := range []struct{ file, sets, want string }{
		{"", "", ""},
		{"", "rate.floor=0.1", "--set rate.floor=0.1: rate.shape is not constant"},
		{"[rate]\nfloor = 0.1", "", "f:2: rate.shape is not constant"},
		{"[rate]\nfloor = 0.1", "rate.shape=linear", ""},
		{"[rate]\nfloor = 0.5", "", ""}, // the default, as run.toml states it
		{"", "rate.floor=0.5", "--set rate.floor=0.5: rate.shape is not constant"},
		{"", "rate.floor=0", ""},
		{"", "rate.steps=3", "--set rate.steps=3: rate.shape is linear or rate.shape is cosine"},
		{"", "rate.steps=3 rate.shape=cosine", "--set rate.steps=3: extra.on is true"},
		{"", "rate.steps=3 rate.shape=cosine extra.on=true", ""},
		{"", "rate.other=3", ""},
		{"", "extra.depth=4", "--set extra.depth=4: extra.on is true"},
		{"", "extra.depth=4 extra.on=true", ""},
		{"", "extra.of=4 extra.on=true", "--set extra.of=4: extra.names is not empty"},
		{"", "extra.of=4 extra.on=true extra.names=a,b", ""},
	} {
		var c idleConfig
		c.Rate.Shape, c.Rate.Floor = "constant", 0.5
		file, err := File("f", []byte(x.file))
		if err != nil {
			t.Fatal(err)
		}
		sets, err := Sets(strings.Fields(x.sets))
		if err != nil {
			t.Fatal(err)
		}
		r, err := Resolve(&c, Command{}, file, sets)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		r.Idle(func(s Setting, needs string) { got = append(got, s.Place+": "+needs) })
		if strings.Join(got, "\n") != x.want {
			t.Errorf("%q %q: idle %q, want %q", x.file, x.sets, got, x.want)
		}
	}
}

// TestContradiction: a flag and a --set that say different things of a key are refused; a
// --set after another one counts, and so does either over a file.
func TestContradiction(t *testing.T) {
	flag := Setting{Section: "extra", Key: "on", Place: "--extra", Value: true}
	for sets, wrong := range map[string]bool{"extra.on=false": true, "extra.on=true": false, "extra.depth=1 extra.depth=2": false} {
		source, err := Sets(strings.Fields(sets))
		if err != nil {
			t.Fatal(err)
		}
		file, err := File("f", []byte("[extra]\non = false"))
		if err != nil {
			t.Fatal(err)
		}
		for _, flags := range []Source{slices.Concat(source, Source{flag}), slices.Concat(Source{flag}, source)} {
			var c idleConfig
			_, err = Resolve(&c, Command{}, file, flags)
			if (err != nil) != wrong || wrong && !(strings.Contains(err.Error(), "--extra") && strings.Contains(err.Error(), "--set extra.on=false")) {
				t.Errorf("--extra and %s: %v", sets, err)
			}
		}
	}
}

// TestOtherForms: a run file that is YAML or JSON is named as such, and another mistake is not.
func TestOtherForms(t *testing.T) {
	for text, want := range map[string]string{
		"model:\n  path: x\n":                 "f looks like YAML or JSON, and a run file is TOML",
		"---\nlearning_rate: 1e-5\n":          "YAML",
		"# for GRPO\nbf16: true\n":            "YAML",
		"list:\n- a\n- b: 3\n":                "YAML",
		"\"a\": {b: 1}\n":                     "YAML",
		`{"model": {"path": "x"}}`:            "f looks like YAML or JSON, and a run file is TOML",
		"\n {\n  \"learning_rate\": 1e-5\n}":  "JSON",
		"[train]\nrounds 3\n":                 "f:2: ",
		"[data]\ntrain = https://a.b/c.jsonl": "f:2: ",
		"[train]\nrounds = 3\ntext = \"a":     "f:3: ",
	} {
		_, err := File("f", []byte(text))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(want, "f:") && strings.Contains(err.Error(), "looks like") {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// TestCalled: an unknown flag is answered with the command's flag, if it has one, and else
// with the setting.
func TestCalled(t *testing.T) {
	var c struct {
		Optimizer struct {
			Rate float64 `toml:"learning_rate" flag:"lr" help:"the rate"`
			Beta float64 `toml:"beta1" help:"the decay"`
		} `toml:"optimizer"`
		Model struct {
			Path string `toml:"path" flag:"model" help:"the folder"`
		} `toml:"model"`
	}
	for _, x := range []struct{ flag, has, want string }{
		{"learning-rate", "optimizer.learning_rate=lr", "; here it is --lr: the rate"},
		{"learning_rate", "optimizer.learning_rate=lr", "; here it is --lr: the rate"},
		{"learning-rate", "", "; here it is --set optimizer.learning_rate=...: the rate"},
		{"adam_beta1", "optimizer.beta1=decay", "; here it is --decay: the decay"},
		{"model", "", "; it is --set model.path=..."},
		{"beta1", "", "; it is --set optimizer.beta1=..."},
		{"beta1", "optimizer.beta1=decay", "; it is --decay"},
		{"Model-Name-Or-Path", "model.path=model", "; here it is --model: the folder"},
		{"logging-steps", "", "; here every step is logged"},
		{"nothing", "", ""},
		{"host", "", "; here it is --addr: the address"},
		{"dataset", "", "; here it is FILE: problems"},
		{"gpu-memory-utilization", "", "; here memory is taken as it is needed, without a setting"},
	} {
		path, flag, _ := strings.Cut(x.has, "=")
		r, err := Resolve(&c, Command{Flags: map[string]string{path: flag}, Others: map[string]string{"--addr": "the address", "FILE": "problems"}, Sets: true})
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Called(x.flag); got != x.want {
			t.Errorf("--%s with %s: %q, want %q", x.flag, x.has, got, x.want)
		}
	}
}

// TestCase: a name or a choice in another case is answered with the right one.
func TestCase(t *testing.T) {
	for word, want := range map[string]string{"GRPO": "grpo", "Grpo": "grpo", "AdamW": "adamw", "FLOAT32": "float32", "Ada": "adamw", "cau": "CausalLM"} {
		if got, _ := closest(word, []string{"dapo", "grpo", "adamw", "float32", "CausalLM"}); got != want {
			t.Errorf("%s: %q, want %q", word, got, want)
		}
	}
	c := struct {
		Shape string `choice:"constant linear cosine"`
	}{"Cosine"}
	if err := Check(&c); err == nil || !strings.HasSuffix(fmt.Sprint(err), `; did you mean "cosine"?`) {
		t.Error(err)
	}
}
