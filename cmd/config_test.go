package cmd

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"onering/data"
	"onering/internal/settings"
	"onering/models"
	"onering/tokenize"
	"onering/train/rl"
)

// needed are the settings that every valid configuration must state.
const needed = "[model]\npath = \"m\"\n[data]\ntrain = \"d\"\n"

// load resolves and validates the given sources as a command does.
func load(file string, env, sets []string) (rl.Config, error) {
	l, err := settings.File("run.toml", []byte(file))
	if err != nil {
		return rl.Config{}, err
	}
	flags, err := settings.Sets(sets)
	if err != nil {
		return rl.Config{}, err
	}
	r, err := resolve(l, settings.Environment(new(rl.Config), env), flags)
	if err != nil {
		return rl.Config{}, err
	}
	return r.Config, r.validate()
}

func TestPrecedence(t *testing.T) {
	file := needed + "[optimizer]\nbeta1 = 0.1\nbeta2 = 0.1\neps = 0.1\n"
	env := []string{"ONERING_OPTIMIZER_BETA2=0.2", "ONERING_OPTIMIZER_EPS=0.2", "HOME=/root"}
	c, err := load(file, env, []string{"optimizer.eps=0.3"})
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprintf("%+v", c.Optimizer.Rule); got != "&{Beta1:0.1 Beta2:0.2 Eps:0.3 WeightDecay:0}" {
		t.Errorf("got %s", got)
	}
}

// These are columns, a template and the sampling of an evaluation, as a run file has them.
func TestDataKeys(t *testing.T) {
	c, err := load(`[model]
path = "m"
template = """
Solve it.
{problem}
Answer: """
stop = ["\n\n"]
[data]
train = "x.parquet"
prompt = "problem"
answer = "reward_model.ground_truth"
id = "uid"
split = "train"
filter = "level in 3..5"
[eval]
suites = ["held.jsonl"]
samples = 4
temperature = 0.6
top_p = 0.95
max_new_tokens = 512
answer = "gold"
`, nil, []string{"data.prompt=question", `model.stop=["</answer>", "x"]`})
	if err != nil {
		t.Fatal(err)
	}
	around, err := c.Model.PromptTemplate()
	if err != nil || around.Render("1+1?") != "Solve it.\n1+1?\nAnswer: " || !slices.Equal(around.Stops, []string{"</answer>", "x"}) {
		t.Errorf("template %+v, %v", around, err)
	}
	if o := c.Data.Options(); o.Prompt != "question" || o.Answer != "reward_model.ground_truth" || o.ID != "uid" || o.Split != "train" || o.Filter != "level in 3..5" {
		t.Errorf("data %+v", o)
	}
	if e := c.Eval; e.TopP != 0.95 || e.MaxNewTokens != 512 || e.Options().Answer != "gold" {
		t.Errorf("eval %+v", e)
	}
	checkRoundTrip(t, c)
	for text, want := range map[string]string{
		"template = \"qwen\"":                    `run.toml:3: model.template = "qwen": must be one of auto, chat, concat, llama-instruct, no, open-reasoner-zero, prime-zero, qwen_math, r1, r1d, or a text with {problem} in it, once`,
		"template_args = [\"a=1\"]":              `run.toml:3: model.template_args = [a=1]: goes with the template chat; other templates read no names`,
		"template = \"chat\"\ntemplate_args = 7": `run.toml:4: model.template_args = 7: must be a list`,
		"system = \"Be brief.\"":                 `run.toml:3: model.system = "Be brief.": goes with the template chat; other templates are written with theirs`,
		"[data]\nfilter = \"level in\"":          `run.toml:4: data.filter = "level in": `,
		"[stream]\nweight = 0.1":                 `run.toml:4: key "weight" in [stream]: there may be several, so write [[stream]] above it, a table for each`,
		"[data]\ntrain = \"x\"\nprompts = \"q\"": `run.toml:5: data.prompts = "q": must be a whole number`,
	} {
		_, err := load("[model]\npath = \"m\"\n"+text+"\n", nil, nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %s", text, err, want)
		}
	}
}

// TestSuiteTables: a suite may have settings of its own, in a file and in --set, and
// run.toml states them again.
func TestSuiteTables(t *testing.T) {
	for _, c := range []struct {
		file string
		sets []string
	}{
		{"[eval]\nsamples = 16\ntemperature = 0.6\ntop_p = 0.95\nsuites = [\"a.jsonl\", {path = \"g=b.jsonl\", temperature = 0}, {path = \"c\", samples = 2, max_new_tokens = 7}]\n", nil},
		{"[eval]\nsamples = 16\ntop_p = 0.95\ntemperature = 0.6\n[[eval.suites]]\npath = \"a.jsonl\"\n[[eval.suites]]\npath = \"g=b.jsonl\"\ntemperature = 0\n[[eval.suites]]\npath = \"c\"\nsamples = 2\nmax_new_tokens = 7\n", nil},
		{"[eval]\nsuites = [\"x\"]\n", []string{"eval.samples=16", "eval.temperature=0.6", "eval.top_p=0.95", `eval.suites=["a.jsonl", {path="g=b.jsonl", temperature=0}, {path="c", samples=2, max_new_tokens=7}]`}},
	} {
		config, err := load(needed+c.file, nil, c.sets)
		if err != nil {
			t.Errorf("%s%q: %v", c.file, c.sets, err)
			continue
		}
		for _, x := range []rl.Config{config, func() rl.Config { again, _ := reread(t, config); return again }()} {
			e := x.Eval
			if !slices.Equal(e.Suites.Paths(), []string{"a.jsonl", "g=b.jsonl", "c"}) || e.Alone(0).Samples != 16 || e.Alone(0).TopP != 0.95 {
				t.Errorf("%s%q: suites %q", c.file, c.sets, e.Suites.Paths())
			}
			if own := e.Alone(1); own.Temperature != 0 || !own.OrGreedy().Greedy || own.Samples != 1 || own.TopP != 1 || own.MaxNewTokens != 0 {
				t.Errorf("%s%q: the second suite has %+v", c.file, c.sets, own)
			}
			if own := e.Alone(2); own.Samples != 2 || own.Temperature != 0.6 || own.TopP != 0.95 || own.MaxNewTokens != 7 {
				t.Errorf("%s%q: the third suite has %+v", c.file, c.sets, own)
			}
		}
	}
	for set, want := range map[string]string{
		`eval.suites=[{path="a", temperature=-1}]`: `eval.suites = "a": its temperature = -1: must be in [0.001, 1000]`,
		`eval.suites=[{path="a", samples=4}]`:      `eval.suites = "a": its samples = 4: samples of greedy decoding are all the same`,
		`eval.suites=[{path="a", temp=1}]`:         `unknown key "temp"; did you mean "temperature"?; a suite has path, samples`,
		`eval.suites=[{path="a", extract="box"}]`:  "extract is the same for all suites: set eval.extract",
		`eval.suites=["a", {path="b", top_p="x"}]`: `element 2: top_p = "x": must be a number`,
		`eval.suites=[{samples=1}]`:                "must not hold an empty name",
		`eval.suites=[{path=a}]`:                   "is not TOML: must be a list of files and tables",
	} {
		if _, err := load(needed, nil, []string{set}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("--set %s: %v, want %s", set, err, want)
		}
	}
}

// The arguments of a chat template are a list or a table, in any of TOML's forms.
func TestTemplateArgs(t *testing.T) {
	want := tokenize.ArgTexts{"date_string=03 Feb 2025", "enable_thinking=false"}
	for text, sets := range map[string][]string{
		`template_args = {enable_thinking = false, date_string = "03 Feb 2025"}`:             nil,
		"[model.template_args]\nenable_thinking = false\ndate_string = \"03 Feb 2025\"":      nil,
		`template_args = ["date_string=03 Feb 2025", "enable_thinking=false"]`:               nil,
		"template_args.enable_thinking = false\ntemplate_args.date_string = \"03 Feb 2025\"": nil,
		"system = \"a\"": {`model.template_args={enable_thinking = false, date_string = "03 Feb 2025"}`},
		"system = \"b\"": {`model.template_args=["date_string=03 Feb 2025", "enable_thinking=false"]`},
		"system = \"c\"": {"model.template_args=date_string=03 Feb 2025,enable_thinking=false"},
		"template_args = [\"a=1\"]\nsystem = \"d\"": {"model.template_args=date_string=03 Feb 2025,enable_thinking=false"},
	} {
		c, err := load("[model]\npath = \"m\"\ntemplate = \"chat\"\n"+text+"\n[data]\ntrain = \"x.jsonl\"\n", nil, sets)
		if err != nil || !slices.Equal(c.Model.Args, want) {
			t.Errorf("%s %q: %q, %v, want %q", text, sets, c.Model.Args, err, want)
			continue
		}
		if again, _ := reread(t, c); !slices.Equal(again.Model.Args, want) {
			t.Errorf("run.toml loads to %q, want %q", again.Model.Args, want)
		}
	}
}

func TestTextValues(t *testing.T) {
	for _, tt := range []struct {
		set string
		get func(rl.Config) any
		val any
	}{
		{`model.path=Qwen/Qwen2.5-Math-1.5B`, func(c rl.Config) any { return c.Model.Path }, "Qwen/Qwen2.5-Math-1.5B"},
		{`model.path="a b"`, func(c rl.Config) any { return c.Model.Path }, "a b"},
		{`model.path=7`, func(c rl.Config) any { return c.Model.Path }, "7"},
		{`model.path=true`, func(c rl.Config) any { return c.Model.Path }, "true"},
		{`model.path=a=b`, func(c rl.Config) any { return c.Model.Path }, "a=b"},
		{"model.path=1\nseed=2", func(c rl.Config) any { return c.Model.Path }, "1\nseed=2"},
		{`data.filter=level in 3..5`, func(c rl.Config) any { return c.Data.Filter }, "level in 3..5"},
		{`rollout.temperature=1`, func(c rl.Config) any { return c.Rollout.Temperature }, 1.0},
		{`optimizer.learning_rate=2e-4`, func(c rl.Config) any { return c.Optimizer.LearningRate }, 2e-4},
		{`train.micro_tokens=8_192`, func(c rl.Config) any { return c.Train.MicroTokens }, 8192},
		{`eval.suites=a.jsonl,b.jsonl`, func(c rl.Config) any { return c.Eval.Suites.Paths() }, []string{"a.jsonl", "b.jsonl"}},
		{`eval.suites=["a.jsonl","b,c"]`, func(c rl.Config) any { return c.Eval.Suites.Paths() }, []string{"a.jsonl", "b,c"}},
		{`eval.suites="a.jsonl"`, func(c rl.Config) any { return c.Eval.Suites.Paths() }, []string{"a.jsonl"}},
		{`eval.suites=`, func(c rl.Config) any { return len(c.Eval.Suites) }, 0},
		{`output.dir=`, func(c rl.Config) any { return c.Output.Dir }, ""},
	} {
		c, err := load(needed, nil, []string{tt.set})
		if err != nil {
			t.Errorf("--set %s: %v", tt.set, err)
		} else if got := tt.get(c); !reflect.DeepEqual(got, tt.val) {
			t.Errorf("--set %s gave %#v, want %#v", tt.set, got, tt.val)
		}
	}
}

func TestBadConfig(t *testing.T) {
	for _, tt := range []struct {
		name, file string
		env, sets  []string
		want       []string // the lines of the error
	}{
		{name: "unknown key", file: needed + "[optimizer]\nlerning_rate = 1e-6\n",
			want: []string{`run.toml:6: unknown key "lerning_rate" in [optimizer]; did you mean "learning_rate"?`}},
		{name: "unknown key without a neighbour", file: needed + "[optimizer]\n\n# momentum\nmomentum = 0.9\n",
			want: []string{`run.toml:8: unknown key "momentum" in [optimizer]`}},
		{name: "key of another section", file: needed + "[optimizer]\nrounds = 3\n",
			want: []string{`run.toml:6: unknown key "rounds" in [optimizer]; it belongs in [train]`}},
		{name: "unknown section", file: needed + "[optimiser]\nbeta1 = 0.9\n",
			want: []string{`run.toml:5: unknown section [optimiser]; did you mean "optimizer"?`}},
		{name: "key outside", file: "learning_rate = 1\n" + needed,
			want: []string{`run.toml:1: key "learning_rate" stands outside the sections; it belongs in [optimizer]`}},
		{name: "section as key", file: "model = \"m\"\n",
			want: []string{`run.toml:1: "model" must be a section: write [model] on a line of its own`}},
		{name: "array of sections", file: "[[model]]\npath = \"m\"\n",
			want: []string{`run.toml:1: "model" must be one section: write [model] on a line of its own`}},
		{name: "key twice", file: needed + "[train]\nrounds = 1\nrounds = 2\n",
			want: []string{`run.toml:7: Key 'train.rounds' has already been defined.`}},
		{name: "syntax", file: needed + "[train]\nrounds = \n",
			want: []string{`run.toml:6: expected value but found '\n' instead`}},
		{name: "string for a number", file: needed + "[rollout]\ntemperature = \"high\"\n",
			want: []string{`run.toml:6: rollout.temperature = "high": must be a number`}},
		{name: "fraction for a count", file: needed + "[train]\nrounds = 1.5\n",
			want: []string{`run.toml:6: train.rounds = 1.5: must be a whole number`}},
		{name: "number for a string", file: needed + "[output]\ndir = 7\n",
			want: []string{`run.toml:6: output.dir = 7: must be a string in quotes`}},
		{name: "switch for a choice", file: needed + "[optimizer]\noffload = true\n",
			want: []string{`run.toml:6: optimizer.offload = true: must be one of "none", "moments", "all"`}},
		{name: "mixed list", file: needed + "[eval]\nsuites = [\"a\", 1]\n",
			want: []string{`run.toml:6: eval.suites: element 2: 1: must be a list of files and tables such as ["a.jsonl", {path = "b.jsonl", temperature = 0.6, samples = 16}]`}},
		{name: "table for a key", file: needed + "[train.rounds]\nn = 1\n",
			want: []string{`run.toml:5: train.rounds = {...}: must be a whole number`}},
		{name: "impossible value", file: needed + "[optimizer]\nbeta1 = 1.5\n",
			want: []string{`run.toml:6: optimizer.beta1 = 1.5: must be in [0, 1)`}},
		{name: "not a number", file: needed + "[optimizer]\nlearning_rate = nan\n",
			want: []string{`run.toml:6: optimizer.learning_rate = NaN: must be a finite number above 0`}},
		{name: "infinite", file: needed + "[rollout]\ntemperature = inf\n",
			want: []string{`run.toml:6: rollout.temperature = +Inf: must be in [0.001, 1000]`}},
		{name: "batch does not divide", file: needed + "[train]\nbatch_size = 100\n",
			want: []string{`run.toml:6: train.batch_size = 100: must divide the 1024 trajectories of a round (rollout.prompts_per_round x rollout.samples_per_prompt)`}},
		{name: "group of one", file: needed + "[rollout]\nsamples_per_prompt = 1\n",
			want: []string{`run.toml:6: rollout.samples_per_prompt = 1: must be at least 2; this objective compares the responses to one prompt (opd does not, nor do objective.advantage = "remax" and, without dapo's dynamic_sampling, "reinforce++")`}},
		{name: "choice", file: needed + "[model]\n",
			want: []string{`run.toml:5: Key 'model' has already been defined.`}},
		{name: "top_k as the paper writes it", file: needed + "[rollout]\ntop_k = -1\n",
			want: []string{`run.toml:6: rollout.top_k = -1: must be at least 0; 0 turns it off`}},
		{name: "device", file: needed + "[runtime]\ndevice = \"cuda:x\"\n",
			want: []string{`run.toml:6: runtime.device = "cuda:x": must be cpu, cuda, cuda:N with the number of a device, or auto`}},
		{name: "evaluation of nothing", file: needed + "[train]\neval_every = 5\n",
			want: []string{`run.toml:6: train.eval_every = 5: needs files in eval.suites; 0 turns evaluation off`}},
		{name: "equal samples", file: needed + "[eval]\nsamples = 4\n",
			want: []string{`run.toml:6: eval.samples = 4: samples of greedy decoding are all the same: set eval.temperature above 0, or 1 sample`}},
		{name: "all at once", file: "[optimizer]\nbeta1 = 2\n[rollout]\ntop_p = 0\n",
			want: []string{
				`model.path is not set: name the model's folder (--set model.path=...)`,
				`data.train is not set: name the file of training problems (--set data.train=...)`,
				`run.toml:4: rollout.top_p = 0: must be in (0, 1]; 1 turns it off`,
				`run.toml:2: optimizer.beta1 = 2: must be in [0, 1)`,
			}},
		{name: "all unknown keys at once", file: needed + "[train]\nround = 1\nbatchsize = 2\n",
			want: []string{
				`run.toml:6: unknown key "round" in [train]; did you mean "rounds"?`,
				`run.toml:7: unknown key "batchsize" in [train]; did you mean "batch_size"?`,
			}},
		{name: "unknown objective", file: needed + "[objective]\nname = \"grpoo\"\n",
			want: []string{`run.toml:6: unknown objective "grpoo"; did you mean "grpo"? (onering objectives lists them)`}},
		{name: "objective of the wrong type", file: needed + "[objective]\nname = 7\n",
			want: []string{`run.toml:6: objective.name = 7: must be a string in quotes`}},
		{name: "key of an objective", file: needed + "[objective]\nclipp = 0.4\n",
			want: []string{`run.toml:6: unknown key "clipp" in [objective] for "pmpo"; did you mean "clip"?`}},
		{name: "key of another objective", file: needed + "[objective]\nname = \"gspo\"\nbisections = 3\n",
			want: []string{`run.toml:7: unknown key "bisections" in [objective] for "gspo"; it has name, advantage, `}},
		{name: "objective's type", file: needed + "[objective]\nclip = \"x\"\n",
			want: []string{`run.toml:6: objective.clip = "x": must be a number`}},

		{name: "environment", file: needed, env: []string{"ONERING_OPTIMIZER_BETA1=x"},
			want: []string{`ONERING_OPTIMIZER_BETA1: optimizer.beta1 = "x": must be a number`}},
		{name: "environment, unknown key", file: needed, env: []string{"ONERING_OPTIMIZER_LERNING_RATE=1"},
			want: []string{`ONERING_OPTIMIZER_LERNING_RATE: unknown key "lerning_rate" in [optimizer]; did you mean "learning_rate"?`}},
		{name: "environment, impossible", file: needed, env: []string{"ONERING_TRAIN_ROUNDS=0"},
			want: []string{`ONERING_TRAIN_ROUNDS: train.rounds = 0: must be at least 1`}},

		{name: "set without value", file: needed, sets: []string{"train.rounds"},
			want: []string{`--set "train.rounds": write section.key=value, such as optimizer.learning_rate=1e-6`}},
		{name: "set without section", file: needed, sets: []string{"rounds=3"},
			want: []string{`--set rounds=3: key "rounds" stands outside the sections; it belongs in [train]`}},
		{name: "set, another trainer's key", file: needed, sets: []string{"gradient_checkpointing_kwargs=3", "num_generations=8"},
			want: []string{`--set gradient_checkpointing_kwargs=3: key "gradient_checkpointing_kwargs" stands outside the sections; write it with its section`,
				`--set num_generations=8: key "num_generations" stands outside the sections; here it is rollout.samples_per_prompt`}},
		{name: "set, unknown section", file: needed, sets: []string{"trian.rounds=3"},
			want: []string{`--set trian.rounds=3: unknown section [trian]; did you mean "train"?`}},
		{name: "set, unknown key", file: needed, sets: []string{"train.roundz=3"},
			want: []string{`--set train.roundz=3: unknown key "roundz" in [train]; did you mean "rounds"?`}},
		{name: "set, type", file: needed, sets: []string{"train.rounds=many"},
			want: []string{`--set train.rounds=many: train.rounds = "many": must be a whole number`}},
		{name: "set, too large", file: needed, sets: []string{"train.rounds=99999999999999999999"},
			want: []string{`--set train.rounds=99999999999999999999: train.rounds = "99999999999999999999": must be a whole number`}},
		{name: "set, impossible", file: needed, sets: []string{"train.rounds=0"},
			want: []string{`--set train.rounds=0: train.rounds = 0: must be at least 1`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := load(tt.file, tt.env, tt.sets)
			if err == nil {
				t.Fatal("no error")
			}
			lines := strings.Split(err.Error(), "\n")
			if len(lines) != len(tt.want) {
				t.Fatalf("got %q, want %q", lines, tt.want)
			}
			for i, want := range tt.want {
				if !strings.HasPrefix(lines[i], want) {
					t.Errorf("got  %s\nwant %s", lines[i], want)
				}
			}
		})
	}
}

// The run files of the repository are for people to copy, so each must load. The test
// gives the settings that they leave to the command line.
func TestRunFiles(t *testing.T) {
	files, err := filepath.Glob("../runs/*.toml")
	if err != nil || len(files) < 3 {
		t.Fatalf("found %d run files: %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			l, err := readRunFile(file, nil)
			if err != nil {
				t.Fatal(err)
			}
			flags, err := settings.Sets([]string{"model.path=m", "data.train=d"})
			if err != nil {
				t.Fatal(err)
			}
			r, err := resolve(l, flags)
			if err != nil {
				t.Fatal(err)
			}
			if err := r.validate(); err != nil {
				t.Fatal(err)
			}
			checkRoundTrip(t, r.Config)
		})
	}
}

// reread writes c as run.toml and reads it again.
func reread(t *testing.T, c rl.Config) (again rl.Config, file []byte) {
	t.Helper()
	file, err := encodeConfig(&c)
	if err != nil {
		t.Fatal(err)
	}
	l, err := settings.File("run.toml", file)
	if err != nil {
		t.Fatalf("%v in\n%s", err, file)
	}
	r, err := resolve(l)
	if err != nil {
		t.Fatalf("%v in\n%s", err, file)
	}
	return r.Config, file
}

// checkRoundTrip compares c with its run.toml after loading, and that file with the next one.
func checkRoundTrip(t *testing.T, c rl.Config) {
	t.Helper()
	got, file := reread(t, c)
	again, err := encodeConfig(&got)
	if err != nil {
		t.Fatal(err)
	}
	// A reward may know, beside its settings, from which file it read them.
	got.Reward.Rule, c.Reward.Rule = nil, nil
	if !reflect.DeepEqual(got, c) || !bytes.Equal(again, file) {
		t.Errorf("run.toml loads to\n%+v\nwant\n%+v\nthe file is\n%s", got, c, file)
	}
}

// The paper's recipe (section 4 and the table of hyperparameters), spelled out in the run
// file, equals Default.
func TestPaperRecipe(t *testing.T) {
	l, err := readRunFile("../runs/pmpo-qwen2.5-math-1.5b.toml", nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := resolve(l)
	if err != nil {
		t.Fatal(err)
	}
	got, want := r.Config, rl.Default()
	if !reflect.DeepEqual(got.Optimizer, want.Optimizer) || !reflect.DeepEqual(got.Objective, want.Objective) {
		t.Errorf("optimizer %+v and objective %+v, want %+v and %+v", got.Optimizer, got.Objective.Settings, want.Optimizer, want.Objective.Settings)
	}
	// Slots, portions and precision depend on the machine and may differ from the paper's.
	got.Rollout.Slots, got.Rollout.OldLogProb = want.Rollout.Slots, want.Rollout.OldLogProb
	if got.Rollout != want.Rollout || got.Train.BatchSize != 128 || got.Train.Epochs != 1 {
		t.Errorf("rollout %+v, loop %+v, want %+v", got.Rollout, got.Train, want.Rollout)
	}
	if steps := got.Rollout.PromptsPerRound * got.Rollout.SamplesPerPrompt / got.Train.BatchSize; steps != 8 {
		t.Errorf("%d optimizer steps a round, want 8", steps)
	}
}

// A flag that names another objective than the run file drops the file's settings for
// that objective; settings in flags beside it count.
func TestOtherObjective(t *testing.T) {
	file := needed + "[objective]\nname = \"pmpo\"\np_max = 0.5\n"
	c, err := load(file, nil, []string{"objective.name=grpo"})
	if err != nil {
		t.Fatal(err)
	}
	if want := rl.Default().Objective; c.Objective.Name != "grpo" || reflect.TypeOf(c.Objective.Settings) == reflect.TypeOf(want.Settings) {
		t.Errorf("objective %q %T", c.Objective.Name, c.Objective.Settings)
	}
	// A flag with the same name keeps the file's settings.
	c, err = load(file, nil, []string{"objective.name=pmpo"})
	if err != nil {
		t.Fatal(err)
	}
	if data, _ := encodeConfig(&c); !strings.Contains(string(data), "\np_max = 0.5\n") {
		t.Errorf("p_max is lost:\n%s", data)
	}
	var usage usageError
	if _, err := load(file, nil, []string{"objective.name=grpo", "objective.p_max=0.5"}); !errors.As(err, &usage) {
		t.Errorf("p_max for grpo: error %v", err)
	}
}

// A drift is an optimizer with one setting of its own; it takes no steps in this test.
type drift struct {
	models.Optimizer
	Momentum float64 `toml:"momentum" range:"[0,1)"`
}

// TestOtherOptimizer: optimizer.name chooses the keys of [optimizer] that belong to one
// optimizer. The run's other keys stay, and so do defaults if the name does not change.
func TestOtherOptimizer(t *testing.T) {
	models.RegisterOptimizer("test-drift", func() models.Optimizer { return &drift{Momentum: 0.5} })
	file := needed + "[optimizer]\nbeta1 = 0.1\nwarmup = 7\n"
	c, err := load(file, nil, []string{"optimizer.name=test-drift", "optimizer.momentum=0.25"})
	if err != nil {
		t.Fatal(err)
	}
	if d, ok := c.Optimizer.Rule.(*drift); !ok || d.Momentum != 0.25 || c.Optimizer.Warmup != 7 {
		t.Errorf("optimizer %+v, %+v", c.Optimizer, c.Optimizer.Rule)
	}
	checkRoundTrip(t, c)
	if c, err = load(file, nil, []string{"optimizer.name=adamw"}); err != nil || fmt.Sprint(c.Optimizer.Rule) != "&{0.1 0.95 1e-08 0}" {
		t.Errorf("optimizer %+v, %v", c.Optimizer.Rule, err)
	}
	for set, want := range map[string]string{
		"optimizer.name=test-drft":   `--set optimizer.name=test-drft: unknown optimizer "test-drft"; did you mean "test-drift"? (there are adamw, test-drift)`,
		"optimizer.momentum=0.5":     `--set optimizer.momentum=0.5: unknown key "momentum" in [optimizer]; it has name, learning_rate, max_grad_norm, beta1, beta2, eps, weight_decay, warmup, schedule, floor, rate_by_ess, offload`,
		"optimizer.beta1=0.5":        `--set optimizer.beta1=0.5: unknown key "beta1" in [optimizer] for "test-drift"; it has name, learning_rate, max_grad_norm, momentum, warmup, schedule, floor, rate_by_ess, offload`,
		"optimizer.momentum=1":       `--set optimizer.momentum=1: optimizer.momentum = 1: must be in [0, 1)`,
		"optimizer.momentum=\"big\"": `--set optimizer.momentum="big": optimizer.momentum = "big": must be a number`,
	} {
		sets := []string{set}
		if strings.Contains(want, "test-drift\"") || strings.Contains(want, "must be") {
			sets = append(sets, "optimizer.name=test-drift")
		}
		if strings.HasPrefix(set, "optimizer.name") {
			sets = sets[:1]
		}
		if _, err := load(needed, nil, sets); err == nil || err.Error() != want {
			t.Errorf("%q: error %v, want %s", sets, err, want)
		}
	}
}

func FuzzParseFile(f *testing.F) {
	f.Add(needed + "[optimizer]\nlerning_rate = 1e-6\n")
	f.Add("a.b.c = 1\n[[model]]\n")
	f.Add("model = {path = 'm'}\ntrain.rounds = 3\n")
	f.Add("[objective]\nname = 'pmpo'\nclip = nan\n")
	f.Add(needed + "[[reward.use]]\nname = 'math'\n[[reward.use]]\nname = 'math'\nas = 'again'\nweight = -0.5\n[reward]\ncombine = 'gate'\n")
	f.Add(needed + "reward.use = [{name = 'math', threshold = 0}]\n")
	f.Fuzz(func(t *testing.T, file string) {
		l, err := settings.File("run.toml", []byte(file))
		if err != nil {
			return
		}
		r, err := resolve(l)
		if err != nil {
			return
		}
		if r.validate() == nil {
			checkRoundTrip(t, r.Config)
		}
	})
}

// TestEmbeddedRun checks which commands get the embedded run's settings, and which get
// the documented defaults.
func TestEmbeddedRun(t *testing.T) {
	documented := rl.Default()
	for _, tt := range []struct {
		sets     []string
		embedded bool
		data     string
	}{
		{nil, true, data.Arithmetic},
		{[]string{"train.rounds=3"}, true, data.Arithmetic},
		{[]string{"model.path=" + data.Arithmetic, "data.train=mine.jsonl"}, true, "mine.jsonl"},
		{[]string{"model.path=mine"}, false, data.Arithmetic},
		{[]string{"model.path=mine", "data.train=mine.jsonl"}, false, "mine.jsonl"},
		{[]string{`model.path="mine"`, "data.train=mine.jsonl"}, false, "mine.jsonl"},
	} {
		flags, err := settings.Sets(tt.sets)
		if err != nil {
			t.Fatal(err)
		}
		base, err := newSettings(withTrainDefaults).embeddedRun(nil, flags)
		if err != nil {
			t.Fatal(err)
		}
		r, err := resolve(base, nil, flags)
		if err != nil {
			t.Fatal(err)
		}
		same := r.Rollout.MaxPromptTokens == documented.Rollout.MaxPromptTokens && r.Optimizer.LearningRate == documented.Optimizer.LearningRate && r.Model.Template == documented.Model.Template
		if same == tt.embedded || r.Data.Train.String() != tt.data {
			t.Errorf("%q: embedded %v with data %q, want %v with %q", tt.sets, !same, r.Data.Train, tt.embedded, tt.data)
		}
	}
	flags, _ := settings.Sets([]string{"data.train=mine.jsonl"})
	if _, err := newSettings(withTrainDefaults).embeddedRun(flags); err == nil || !strings.Contains(err.Error(), "model.path is not") {
		t.Errorf("data without a model: %v", err)
	}
}

// TestForeignNames: the answer to a key of TRL, transformers, verl or PEFT names our key
// that does the same, in any section and as a flag.
func TestForeignNames(t *testing.T) {
	for name, want := range map[string]string{
		"lr": "optimizer.learning_rate", "num_generations": "rollout.samples_per_prompt", "beta": "objective.kl_beta", "max_steps": "train.rounds",
		"gradient_accumulation_steps": "train.micro_tokens", "per_device_train_batch_size": "train.batch_size", "max_completion_length": "rollout.max_new_tokens",
		"num_train_epochs": "train.rounds", "warmup_ratio": "optimizer.warmup", "lr_scheduler_type": "optimizer.schedule", "num_iterations": "train.epochs",
		"epsilon_high": "objective.clip_high", "loss_type": "objective.name", "reward_funcs": "reward.name", "model_name_or_path": "model.path",
		"dataset_name": "data.train", "lora_r": "lora.rank", "kl_loss_coef": "objective.kl_beta", "train_batch_size": "rollout.prompts_per_round",
		"ppo_mini_batch_size": "train.batch_size", "test_freq": "train.eval_every", "val_files": "eval.suites", "total_epochs": "train.rounds",
		"output_dir": "output.dir", "adam_beta2": "optimizer.beta2", "clip_ratio": "objective.clip_low", "max_prompt_length": "rollout.max_prompt_tokens",
	} {
		for _, args := range [][]string{{"--set", "train." + name + "=1"}, {"--set", "actor.deep." + name + "=1"}, {"--" + name, "1"}, {"--" + strings.ReplaceAll(name, "_", "-"), "1"}} {
			var stderr bytes.Buffer
			if args[0] != "--set" && newTrain().Flags().Lookup(args[0][2:]) != nil {
				continue // the command has this flag itself
			}
			code := run(append([]string{"train", "--objective=grpo"}, args...), strings.NewReader(""), &stderr, &stderr)
			if flag := flagsOf(newTrain())[want]; flag != "" && args[0] != "--set" {
				want = "--" + flag
			}
			said := strings.ReplaceAll(stderr.String(), "here it is --set ", "here it is ")
			if code != exitUsage || !strings.Contains(said, "here it is "+want) {
				t.Errorf("%v: exit code %d, %q; want %s", args, code, &stderr, want)
			}
		}
	}
	for name, want := range map[string]string{"num_train_epochs": "here it is train.epochs", "max_seq_length": "here it is data.max_tokens", "packing": "here demonstrations are always packed", "batch_sise": `did you mean "batch_size"?`} {
		var stderr bytes.Buffer
		code := run([]string{"sft", "--model", "a", "--data", "b", "--out", "c", "--set", "train." + name + "=1"}, strings.NewReader(""), &stderr, &stderr)
		if code != exitUsage || !strings.Contains(stderr.String(), want) {
			t.Errorf("sft: %s: %q, want %q", name, &stderr, want)
		}
	}
}

// TestNextCommands: a run whose episodes are played is followed by commands that play them.
func TestNextCommands(t *testing.T) {
	for name, want := range map[string]string{
		"single": `onering chat --model out`, "tools": "onering eval --model out --limit 10 --suite p.jsonl", "program": "onering serve --model out",
	} {
		config := rl.Default()
		config.Model.Template = "chat"
		config.Data.Train = rl.TrainFiles{{Path: "p.jsonl"}}
		if err := settings.Choose(&config, "environment", name); err != nil {
			t.Fatal(err)
		}
		if got := nextCommands(rl.Summary{Folder: "out"}, config); len(got) != 1 || got[0] != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
