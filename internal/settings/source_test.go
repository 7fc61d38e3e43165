package settings

import (
	"fmt"
	"strings"
	"testing"
)

// TestFilePlaces: a setting of a run file has the number of the line that states it, in
// any notation. A key inside a value has the line of its table.
func TestFilePlaces(t *testing.T) {
	const file = `stray = 1
"model".path = 'a#b' # [not.a.section]
[train] # rounds = 9
rounds = 3
text = """
[[reward.use]]
seed = 1 \"""
"""
'seed' = 2
list = [
  1, # [x]
  2,
]
[[reward.use]]
name = "a"
[ "reward" . use ]
[[reward.use]]
weight = { low = 1 }
[model.args]
x = 1
`
	valid := strings.Replace(file, "[ \"reward\" . use ]\n", "\n", 1)
	if _, err := File("f", []byte(file)); err == nil || !strings.HasPrefix(err.Error(), "f:16: ") {
		t.Errorf("error %v", err)
	}
	source, err := File("f", []byte(valid))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range source {
		got = append(got, s.Path()+" "+s.Place)
		if s.Path() == "reward.use" {
			got = append(got, s.inside("0", "name"), s.inside("1"), s.inside("1", "weight", "low"))
		}
	}
	want := "[.stray f:1 model. f:2 model.path f:2 train. f:3 train.rounds f:4 train.text f:5 train.seed f:9 train.list f:10 " +
		"reward. f:14 reward.use f:14 f:15 f:17 f:18 model.args f:19]"
	if fmt.Sprint(got) != want {
		t.Errorf("got  %v\nwant %s", got, want)
	}
}

// TestNesting: a document that nests values, tables or names too deep is refused before
// the TOML library reads the document, and brackets in texts and comments do not count.
func TestNesting(t *testing.T) {
	for _, deep := range []string{
		"x = " + strings.Repeat("[", 33) + strings.Repeat("]", 33),
		"x = " + strings.Repeat("[\n# [\n", 33) + strings.Repeat("]", 33),
		"x = " + strings.Repeat("{a = ", 33) + "1" + strings.Repeat("}", 33),
		"[a" + strings.Repeat(".a", 33) + "]",
		"[[a" + strings.Repeat(" . 'a'", 33) + "]]",
		"a" + strings.Repeat(`."b"`, 33) + " = 1",
		"x = {a" + strings.Repeat(".a", 33) + " = 1}",
	} {
		for _, text := range []string{deep, "y = 'it' # it's\n" + deep, `y = """` + "'\n\\\"\"\"\"\n" + deep} {
			if _, err := File("run.toml", []byte(text)); err == nil || !strings.Contains(err.Error(), "more than 32 deep") {
				t.Errorf("%s: %v", text, err)
			}
		}
	}
	for _, text := range []string{
		"x = '" + strings.Repeat("[", 99) + "' # " + strings.Repeat("[", 99),
		"x = [" + strings.Repeat("[1.5, 'a.b'],", 99) + "]",
		"x = \"\"\"" + strings.Repeat("{", 99) + "\"\"\"\n" + strings.Repeat("[a.b.c.d]\n[[e.f]]\n", 1),
		"x = '''" + strings.Repeat(".", 99) + "'''",
	} {
		if _, err := File("run.toml", []byte(text)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestManyUnknown: a file with many unknown keys is refused with an error that names the first
// keys.
func TestManyUnknown(t *testing.T) {
	var config struct {
		Train struct {
			Rounds int `help:"how many"`
		} `toml:"train"`
	}
	text := "[train]\n"
	for i := range 3 * mostErrors {
		text += fmt.Sprintf("key%d = 1\n", i)
	}
	source, err := File("run.toml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	_, err = Resolve(&config, Command{}, source)
	if got := len(Flatten(err)); got != mostErrors+1 || !strings.Contains(err.Error(), "there may be more") {
		t.Errorf("%d errors, want %d: %v", got, mostErrors+1, err)
	}
}

// TestOtherNames: a setting may be stated by another name in a file, by --set and in the environment.
func TestOtherNames(t *testing.T) {
	file, err := File("run.toml", []byte("[model]\nbase_dtype = \"int8\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	sets, err := Sets([]string{"model.base_dtype=int8"})
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Model struct {
			Path string `toml:"path"`
		} `toml:"model"`
	}
	for place, source := range map[string]Source{"run.toml:2": file, "--set model.base_dtype=int8": sets,
		"ONERING_MODEL_BASE_DTYPE": Environment(&config, []string{"ONERING_MODEL_BASE_DTYPE=int8"})} {
		if s := Find("lora.base_dtype", source); s.Value != "int8" || s.Place != place {
			t.Errorf("%s: %+v", place, s)
		}
	}
}
