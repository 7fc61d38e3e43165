package report

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// browser returns the path of a Chromium, or skips the test if there is none.
func browser(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("there is no Chromium on this machine to draw the page")
	return ""
}

// before is a script that runs before the page's scripts and collects errors.
const before = `window.errors=[];addEventListener("error",(e)=>errors.push(String(e.message)));
addEventListener("securitypolicyviolation",(e)=>errors.push("fetches "+e.blockedURI));
const say=console.error;console.error=(...a)=>{errors.push(a.join(" "));say(...a)}`

// script wraps code that uses a page as a reader would. Its value is the code's observations, as
// JSON.
func script(use string) string {
	return `(async()=>{const seen={},wait=(ms)=>new Promise((r)=>setTimeout(r,ms));` + use +
		`;seen.errors=window.errors;return JSON.stringify(seen)})().catch((e)=>JSON.stringify({errors:[...errors,String(e.stack)]}))`
}

// useCharts draws all charts, points at one and saves it, sorts the table, and changes the
// theme and the colours.
const useCharts = `
  const boxes=[...document.querySelectorAll(".chart")];
  for(const b of boxes)for(let i=0;i<100&&!b.querySelector("canvas");i++){b.scrollIntoView({behavior:"instant"});await Promise.race([new Promise(requestAnimationFrame),wait(50)]);await wait(20)}
  seen.figures=boxes.length;
  seen.drawn=boxes.filter((b)=>b.querySelector("canvas")).length;
  const box=boxes.find((b)=>b.dataset.id==="grad_norm"),at=box.getBoundingClientRect();
  for(const dx of [0,5])box.querySelector("canvas").dispatchEvent(new MouseEvent("mousemove",{bubbles:true,clientX:at.x+at.width/2+dx,clientY:at.y+at.height/2}));
  await wait(400);
  seen.tooltip=[...box.querySelectorAll("div")].map((d)=>d.innerText).join(" ");
  const theme=document.documentElement.dataset.theme;
  document.getElementById("theme").click();
  seen.toggled=theme!==document.documentElement.dataset.theme;
  const column=(n)=>[...document.querySelectorAll("#table tbody tr")].map((r)=>Number(r.cells[n].innerText));
  const heads=[...document.querySelectorAll("#table th")];
  const n=heads.findIndex((h)=>h.innerText.startsWith("grad norm, max"));
  heads[n].click();
  const values=column(n);
  seen.sorted=values.length>0&&values.every((v,i)=>i===0||v<=values[i-1]);
  document.querySelector("#findings dd button").click();
  seen.verdicts=[...new Set([...document.querySelectorAll("#rollout-list .verdict")].map((v)=>v.innerText))].join(" ");
  seen.tokens=document.querySelectorAll("#rollout-list .token").length;
  seen.colours=[];
  const by=[...document.querySelectorAll("#rollout-bar select")].pop();
  for(const o of by.options){by.value=o.value;by.onchange();
    seen.colours.push((o.value||"none")+" "+document.querySelector("#rollout-list .token").style.background)}
  const saved=[];HTMLAnchorElement.prototype.click=function(){saved.push(this.download+" "+this.href.slice(0,30))};
  for(const b of box.parentElement.querySelectorAll(".tools button"))b.click();
  seen.saved=saved.map((s)=>s.replace(/blob:.*/,"blob:"));
`

// useResponses uses every control of the responses, the map of problems and the settings.
const useResponses = `
  const bar=document.getElementById("rollout-bar"),control=(text)=>[...bar.querySelectorAll("label")].find((l)=>l.innerText.startsWith(text)).querySelector("input,select");
  const type=async(i,text)=>{i.value=text;i.dispatchEvent(new Event("input"));await wait(300)};
  const choose=(s,value)=>{s.value=value;s.dispatchEvent(new Event("change"))};
  const cards=()=>document.querySelectorAll("#rollout-list .rollout").length;
  const say=(n)=>document.querySelectorAll("#rollout-list .problem")[n].innerText;
  choose(control("Verdict"),"all");
  seen.all=cards();
  await type(control("Search"),"Q: 1+4=");
  seen.found=[cards(),document.querySelectorAll("#rollout-list .problem").length];
  document.querySelector("#rollout-list details").open=true;
  seen.problem=say(0);
  await type(control("Search"),"nowhere");
  seen.none=cards();
  await type(control("Search"),"");
  await type(control("Reward from"),"0.5");
  seen.rewarded=[...document.querySelectorAll("#rollout-list .rollout .head")].map((h)=>/reward ([0-9.]+)/.exec(h.innerText)[1]);
  await type(control("Reward from"),"");
  choose(control("Order"),"weight");
  seen.weights=[...document.querySelectorAll("#rollout-list .problem")].map((p)=>Number(/largest weight ([0-9.]+)/.exec(p.innerText)[1]));
  choose(control("Order"),"problem");
  const row=document.querySelector(".heat tbody tr");
  seen.heat=[document.querySelectorAll(".heat tbody tr").length,row.querySelectorAll("td").length,row.querySelector("td").title];
  row.querySelector("button").click();
  seen.clicked=[control("Search").value,control("Round").value,document.querySelectorAll("#rollout-list .problem").length];
  seen.settings=document.getElementById("settings-table").innerText;
  seen.width=[document.documentElement.scrollWidth,innerWidth];
`

// useTurns looks at the responses of the last run, which are episodes.
const useTurns = `
  const selects=document.querySelectorAll("#rollout-bar select");
  selects[0].value=selects[0].options.length-1;selects[0].onchange();
  selects[2].value="all";selects[2].onchange();
  const cards=[...document.querySelectorAll("#rollout-list .rollout")];
  seen.turns=cards.map((c)=>/([0-9]+ tokens( in [0-9]+ turns)?)/.exec(c.innerText)[1]+": "+
    [...c.children].slice(1).map((e)=>e.tagName+" "+e.className+(e.open?" open":"")+" "+e.textContent).join(", "));
  seen.folded=document.querySelectorAll(".answered").length-document.querySelectorAll(".answered .token").length;
`

// A reading holds the observations that a script returns as JSON.
type reading struct {
	Errors   []string
	Figures  int
	Drawn    int
	Tooltip  string
	Toggled  bool
	Sorted   bool
	Tokens   int
	Verdicts string // the texts of the responses that the button of the finding "What is wrong?" shows
	Saved    []string
	Colours  []string // the first token's text, for each meaning of the colour
	shown             // the number of turns, by the controls of the responses
	Turns    []string // each response's segments: those of the policy and of the environment
	Folded   int      // answers of the environment without their coloured tokens
	Width    [2]int   // widths of the page and of the window
}

// shown is what the page shows after each use of a control.
type shown struct {
	All, None int      // responses without a filter, and with a search that finds none
	Found     [2]int   // responses and problems that a search finds
	Problem   string   // the text of the first response found
	Rewarded  []string // rewards of at least 0.5
	Weights   []float64
	Heat      []any  // rows, columns, the title of the first cell
	Clicked   []any  // the search that a click on a row makes, the round, and the number of problems shown
	Settings  string // the table of settings that differ
}

// A devtools speaks Chromium's debugging protocol through a pair of pipes.
type devtools struct {
	t       *testing.T
	in      io.Writer
	out     *bufio.Reader
	session string // of the page
	id      int
}

// call has the browser execute a command and decodes its answer.
func (d *devtools) call(method string, params map[string]any, result any) {
	d.t.Helper()
	d.id++
	text, err := json.Marshal(map[string]any{"id": d.id, "method": method, "params": params, "sessionId": d.session})
	if d.session == "" {
		text, err = json.Marshal(map[string]any{"id": d.id, "method": method, "params": params})
	}
	if err != nil {
		d.t.Fatal(err)
	}
	if _, err := d.in.Write(append(text, 0)); err != nil {
		d.t.Skipf("the browser does not run here: %v", err)
	}
	for {
		line, err := d.out.ReadBytes(0)
		if err != nil {
			d.t.Fatalf("%s: the browser ended: %v", method, err)
		}
		var answer struct {
			ID            int
			Result, Error json.RawMessage
		}
		if err := json.Unmarshal(line[:len(line)-1], &answer); err != nil {
			d.t.Fatal(err)
		}
		switch {
		case answer.ID != d.id: // an event
			continue
		case answer.Error != nil:
			d.t.Fatalf("%s: %s", method, answer.Error)
		case result != nil:
			if err := json.Unmarshal(answer.Result, result); err != nil {
				d.t.Fatal(err)
			}
		}
		return
	}
}

// evaluate returns the text value of an expression in the page, and waits for it if the
// expression is a promise.
func (d *devtools) evaluate(expression string) string {
	d.t.Helper()
	var x struct {
		Result           struct{ Value string }
		ExceptionDetails json.RawMessage
	}
	d.call("Runtime.evaluate", map[string]any{"expression": expression, "awaitPromise": true, "returnByValue": true}, &x)
	if x.ExceptionDetails != nil {
		d.t.Fatalf("the script failed: %s", x.ExceptionDetails)
	}
	return x.Result.Value
}

// launch starts a browser with an empty page of the given width. The browser ends with the test.
func launch(t *testing.T, width int) *devtools {
	t.Helper()
	chromium := browser(t)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	cmd := exec.CommandContext(ctx, chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic",
		"--no-first-run", "--disable-background-timer-throttling", "--disable-renderer-backgrounding", "--disable-background-networking", "--disable-component-update", "--disable-sync",
		"--user-data-dir="+t.TempDir(), "--remote-debugging-pipe")
	commands, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, answers, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.ExtraFiles = []*os.File{commands, answers} // its descriptors 3 and 4
	if err := cmd.Start(); err != nil {
		t.Skipf("%s does not run here: %v", chromium, err)
	}
	commands.Close()
	answers.Close()
	d := &devtools{t: t, in: in, out: bufio.NewReader(out)}
	t.Cleanup(func() {
		if !t.Skipped() {
			d.session = ""
			in.Write([]byte(`{"id":0,"method":"Browser.close"}` + "\x00"))
			io.Copy(io.Discard, d.out) // The browser has written its profile and ended.
		}
		cancel()
		cmd.Wait()
		in.Close()
		out.Close()
	})
	var target struct{ TargetID string }
	d.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct{ SessionID string }
	d.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	d.session = attached.SessionID
	d.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}, nil)
	d.call("Page.enable", nil, nil)
	d.call("Page.addScriptToEvaluateOnNewDocument", map[string]any{"source": before}, nil)
	return d
}

// read opens a page in a browser of the given width and returns the reading that use makes.
func read(t *testing.T, page []byte, width int, use string) reading {
	t.Helper()
	path := filepath.Join(t.TempDir(), "page.html")
	if err := os.WriteFile(path, page, 0o666); err != nil {
		t.Fatal(err)
	}
	d := launch(t, width)
	d.call("Page.navigate", map[string]any{"url": "file://" + path}, nil)
	for d.evaluate(`location.protocol+document.readyState`) != "file:complete" {
		time.Sleep(20 * time.Millisecond)
	}
	var r reading
	if err := json.Unmarshal([]byte(d.evaluate(script(use))), &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestBrowser draws a page in a real browser. It checks that there is no error, every
// chart is drawn, hovering shows values, the table sorts, the theme changes and the
// exports work.
func TestBrowser(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a browser")
	}
	dir := t.TempDir()
	runs := []*Run{
		mustRead(t, fakeRun(t, filepath.Join(dir, "a"), "pmpo", 1, 80)),
		mustRead(t, fakeRun(t, filepath.Join(dir, "b"), "pmpo", 2, 80)),
		mustRead(t, fakeRun(t, filepath.Join(dir, "c"), "grpo", 1, 80)),
		mustRead(t, episodeRun(t, "33")),
	}
	var b bytes.Buffer
	if err := Write(&b, runs, Options{Tables: []Results{{Title: "Results", Columns: []string{"variant", "pass@1"}, Rows: [][]string{{"pmpo", "0.75"}}}}}); err != nil {
		t.Fatal(err)
	}
	r := read(t, b.Bytes(), 1280, useCharts+useTurns)
	if len(r.Errors) > 0 {
		t.Fatalf("console: %q", r.Errors)
	}
	want := "4 tokens in 2 turns: PRE policy 1+reward 0.25, DETAILS answered environment: 3333, PRE policy 3<eos>; 2 tokens: PRE  3<eos>; 1 tokens: PRE  3"
	if got := strings.Join(r.Turns, "; "); got != want || r.Folded != 1 {
		t.Errorf("episodes are shown as %q, want %q; %d answers are folded", got, want, r.Folded)
	}
	if r.Figures < 12 || r.Drawn != r.Figures {
		t.Errorf("%d of %d charts drawn, want at least 12 charts, all drawn", r.Drawn, r.Figures)
	}
	if !strings.Contains(r.Tooltip, "step") || !strings.Contains(r.Tooltip, "pmpo") {
		t.Errorf("hovering shows %q", r.Tooltip)
	}
	if !r.Toggled || !r.Sorted || r.Tokens == 0 {
		t.Errorf("theme changes %v, table sorts %v, %d tokens", r.Toggled, r.Sorted, r.Tokens)
	}
	if r.Verdicts != "wrong" {
		t.Errorf("the button for wrong responses shows %q", r.Verdicts)
	}
	if got, want := strings.Join(r.Colours, "; "), "logp rgba(224, 123, 57, 0.325); delta rgba(59, 130, 196, 0.545); w rgba(59, 130, 196, 0.7); none "; got != want {
		t.Errorf("colours of a token %q, want %q", got, want)
	}
	saved := strings.Join(r.Saved, "; ")
	if want := regexp.MustCompile(`^grad_norm\.png data:image/png.*; grad_norm\.svg data:image/svg.*; grad_norm\.csv blob:$`); !want.MatchString(saved) {
		t.Errorf("exports %q", saved)
	}
}

// TestBrowserResponses uses the controls of the responses and the map of problems, on a
// desktop and on a phone.
func TestBrowserResponses(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a browser")
	}
	dir := t.TempDir()
	runs := []*Run{
		mustRead(t, fakeRun(t, filepath.Join(dir, "a"), "pmpo", 1, 80)),
		mustRead(t, fakeRun(t, filepath.Join(dir, "c"), "grpo", 1, 80)),
	}
	var b bytes.Buffer
	if err := Write(&b, runs, Options{}); err != nil {
		t.Fatal(err)
	}
	for _, width := range []int{1280, 390} {
		r := read(t, b.Bytes(), width, useCharts+useResponses)
		if len(r.Errors) > 0 {
			t.Fatalf("%d: console: %q", width, r.Errors)
		}
		if r.Width[0] > width || r.Width[1] != width {
			t.Errorf("the page is %d wide in a window of %d, want %d", r.Width[0], r.Width[1], width)
		}
		if r.All != 30 || r.None != 0 || r.Found != [2]int{6, 1} || strings.Join(r.Rewarded, "") != strings.Repeat("1", 15) {
			t.Errorf("%d: all %d, none %d, found %v, rewarded %v", width, r.All, r.None, r.Found, r.Rewarded)
		}
		for _, part := range []string{"3 of 6 right", "q4", "round 10", "expected 3", "The prompt as the model saw it: 3 tokens", "Q: 1+4=", "3 12 6"} {
			if !strings.Contains(r.Problem, part) {
				t.Errorf("%d: the problem has no %q: %s", width, part, r.Problem)
			}
		}
		if got := fmt.Sprint(r.Weights); got != "[0.39 0.38 0.37 0.36 0.35]" {
			t.Errorf("%d: largest weights of the problems %s", width, got)
		}
		if got := fmt.Sprint(r.Heat, r.Clicked); got != "[5 3 rounds 1-4: 6 of 12 right] [q0 all 3]" {
			t.Errorf("%d: map and what a click shows: %s", width, got)
		}
		if !strings.Contains(r.Settings, "objective.name\tpmpo\tgrpo") || strings.Contains(r.Settings, "objective.clip") {
			t.Errorf("%d: settings that differ: %q", width, r.Settings)
		}
	}
}

// TestLargePage checks that a page about 50 runs of 1,000 steps has at most 20 MB, and
// logs how long the browser takes.
func TestLargePage(t *testing.T) {
	if os.Getenv("ONERING_LONG") == "" {
		t.Skip("writes 50 runs of 1,000 steps: set ONERING_LONG=1")
	}
	dir := t.TempDir()
	var runs []*Run
	for k := range 50 {
		runs = append(runs, mustRead(t, fakeRun(t, filepath.Join(dir, fmt.Sprint(k)), fmt.Sprintf("o%d", k), uint64(k), 1000)))
	}
	var b bytes.Buffer
	if err := Write(&b, runs, Options{}); err != nil {
		t.Fatal(err)
	}
	if b.Len() > 20<<20 {
		t.Errorf("%d bytes, want at most 20 MB", b.Len())
	}
	r := read(t, b.Bytes(), 1280, useCharts)
	t.Logf("%.1f MB", float64(b.Len())/1e6)
	if len(r.Errors) > 0 || r.Figures == 0 || r.Drawn != r.Figures {
		t.Errorf("errors %q, %d of %d charts", r.Errors, r.Drawn, r.Figures)
	}
}
