package report

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"html"
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

// The test adds two scripts to a page. before runs first and collects errors. after
// runs last, uses the page as a reader would, and writes what it saw into the document
// as JSON.
const before = `<script>window.errors=[];addEventListener("error",(e)=>errors.push(String(e.message)));
addEventListener("securitypolicyviolation",(e)=>errors.push("fetches "+e.blockedURI));
const say=console.error;console.error=(...a)=>{errors.push(a.join(" "));say(...a)}</script>`

const after = `<script>
const wait=(ms)=>new Promise((r)=>setTimeout(r,ms));
(async()=>{
  const seen={errors:window.errors};
  const boxes=[...document.querySelectorAll(".chart")];
  for(const b of boxes)for(let i=0;i<100&&!b.querySelector("canvas");i++){b.scrollIntoView({behavior:"instant"});await new Promise(requestAnimationFrame);await wait(20)}
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
  const out=document.createElement("pre");out.id="seen";out.textContent=JSON.stringify(seen);document.body.append(out);
})().catch((e)=>{const out=document.createElement("pre");out.id="seen";out.textContent=JSON.stringify({errors:[...errors,String(e.stack)]});document.body.append(out)});
</script></body>`

// A reading is the JSON that the script after writes.
type reading struct {
	Errors   []string
	Figures  int
	Drawn    int
	Tooltip  string
	Toggled  bool
	Sorted   bool
	Tokens   int
	Verdicts string // of the responses that the button of the finding "What is wrong?" shows
	Saved    []string
	Colours  []string // of the first token, for each choice of what the colour means
}

// read opens a page in a headless browser and returns what the script after saw.
func read(t *testing.T, page []byte) reading {
	t.Helper()
	chromium := browser(t)
	text := strings.Replace(string(page), "<head>", "<head>"+before, 1)
	// The page's policy names its own scripts; those of the test are added to it.
	ours := ""
	for _, s := range []string{before, after} {
		s = s[strings.Index(s, "<script>")+len("<script>") : strings.Index(s, "</script>")]
		ours += html.EscapeString(scriptHash(s)) + " "
	}
	text = strings.Replace(text, "script-src ", "script-src "+ours, 1)
	// The chart library has the words too: the last ones are the page's.
	end := strings.LastIndex(text, "</body>")
	text = text[:end] + after + text[end+len("</body>"):]
	dir := t.TempDir()
	path := filepath.Join(dir, "page.html")
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic",
		"--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--window-size=1440,900",
		"--user-data-dir="+filepath.Join(dir, "profile"), "--virtual-time-budget=20000", "--dump-dom", "file://"+path)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	cmd.WaitDelay = 5 * time.Second
	dom, err := cmd.Output()
	if err != nil {
		t.Skipf("%s does not run here: %v\n%s", chromium, err, stderr.String())
	}
	found := regexp.MustCompile(`(?s)<pre id="seen">(.*?)</pre>`).FindSubmatch(dom)
	if found == nil {
		t.Fatalf("the page's scripts did not end; its DOM has %d bytes", len(dom))
	}
	var r reading
	if err := json.Unmarshal([]byte(html.UnescapeString(string(found[1]))), &r); err != nil {
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
	}
	var b bytes.Buffer
	if err := Write(&b, runs, Options{Tables: []Results{{Title: "Results", Columns: []string{"variant", "pass@1"}, Rows: [][]string{{"pmpo", "0.75"}}}}}); err != nil {
		t.Fatal(err)
	}
	r := read(t, b.Bytes())
	if len(r.Errors) > 0 {
		t.Errorf("console: %q", r.Errors)
	}
	if r.Figures < 15 || r.Drawn != r.Figures {
		t.Errorf("%d of %d charts drawn, want at least 15 charts, all drawn", r.Drawn, r.Figures)
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

// TestLargePage checks that a page about 50 runs of 1,000 steps has at most 20 MB, and
// logs how long the browser takes.
func TestLargePage(t *testing.T) {
	if testing.Short() {
		t.Skip("writes 50 runs of 1,000 steps")
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
	r := read(t, b.Bytes())
	t.Logf("%.1f MB", float64(b.Len())/1e6)
	if len(r.Errors) > 0 || r.Figures == 0 || r.Drawn != r.Figures {
		t.Errorf("errors %q, %d of %d charts", r.Errors, r.Drawn, r.Figures)
	}
}
