package hub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	network "onering/internal/remote"
	"onering/internal/strict"
)

const (
	maxAttempts = 5
	// firstWait is the wait before the second attempt; it doubles with each attempt.
	firstWait = time.Second
	// longestWait bounds the wait that a server may ask for.
	longestWait  = 5 * time.Minute
	maxRedirects = 10
	maxAnswer    = 64 << 20 // bytes of an answer of the API
	// maxUnstated bounds a file whose size the hub does not state, and files
	// besides weights and data, in bytes.
	maxUnstated = 512 << 20
)

// A body may take any time as long as bytes keep coming.
const (
	answerTimeout = 30 * time.Second // time until the header of the answer arrives
	stallTimeout  = time.Minute      // time without any bytes of the body
)

// A client talks to one endpoint.
type client struct {
	endpoint    *url.URL
	token       string
	tokenSource string
	permission  string // the permission that the token needs: read or write
	transport   http.RoundTripper
	attempts    int
	notice      func(string)
	sleep       func(context.Context, time.Duration) error
	stall       time.Duration // how long a body may bring no bytes
	unstated    int64         // bytes, see maxUnstated
}

func newClient(s settings, o Options) *client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.ResponseHeaderTimeout = answerTimeout
	transport.DisableCompression = true // ask for no compression: lengths and ranges are those of the file
	return &client{
		endpoint: s.endpoint, token: s.token, tokenSource: s.tokenSource, permission: "read", transport: cmp.Or[http.RoundTripper](o.transport, transport),
		attempts: maxAttempts,
		notice:   o.Notice, sleep: o.wait, stall: cmp.Or(o.stall, stallTimeout), unstated: cmp.Or(o.unstated, maxUnstated),
	}
}

// A call is one request, which may be sent several times.
type call struct {
	method  string
	address *url.URL
	header  http.Header
	// stopAtRedirect returns a redirect away from the endpoint as the answer, in place of following it.
	stopAtRedirect bool
	// onHeader, if not nil, is called with the header of each answer.
	onHeader func(http.Header)

	// body, if not nil, returns the body of the request and its size, each time from the beginning.
	body func() (io.Reader, int64)
	// signed says that the address is signed, so no token is sent: hubs refuse both together.
	signed bool
	// readAnswer, if not nil, reads the answer. After an error of it the call is repeated.
	readAnswer func(*http.Response) error
	// repeatStatuses are statuses after which the call is repeated, in addition to the passing ones.
	repeatStatuses []int
	// beforeRepeat, if not nil, is called before the call is repeated; done says that the
	// purpose of the call was reached, so that no repetition is needed.
	beforeRepeat func() (done bool, err error)
}

// send makes one call and follows redirects. The token is sent only to the endpoint. A
// request with a body is sent only to the host of its address.
func (c *client) send(ctx context.Context, k call) (*http.Response, error) {
	address := k.address
	for range maxRedirects {
		resp, err := c.sendOnce(ctx, k, address)
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", k.method, withoutQuery(address), network.Plain(err))
		}
		if k.onHeader != nil {
			k.onHeader(resp.Header)
		}
		if resp.StatusCode < 300 || resp.StatusCode > 399 || resp.StatusCode == http.StatusNotModified {
			return resp, nil
		}
		to, err := address.Parse(resp.Header.Get("Location"))
		wrong := ""
		switch {
		case err != nil || resp.Header.Get("Location") == "" || to.Scheme != "http" && to.Scheme != "https":
			wrong = "a redirect without a web address"
		case address.Scheme == "https" && to.Scheme == "http":
			wrong = "a redirect from https to http"
		case k.body != nil && !sameOrigin(to, address):
			wrong = "a redirect of an upload to another host"
		case k.body != nil && resp.StatusCode != http.StatusTemporaryRedirect && resp.StatusCode != http.StatusPermanentRedirect:
			wrong = "a redirect that does not repeat the upload"
		}
		if wrong != "" {
			resp.Body.Close()
			return nil, permanent{fmt.Errorf("%s %s: %s", k.method, withoutQuery(address), wrong)}
		}
		if k.stopAtRedirect && !sameOrigin(to, c.endpoint) {
			return resp, nil // the caller wants the redirect itself
		}
		resp.Body.Close()
		address = to
	}
	return nil, permanent{fmt.Errorf("%s %s: more than %d redirects", k.method, withoutQuery(address), maxRedirects)}
}

// sendOnce makes one request. It ends the request if its body, or later that of the answer,
// stalls: if no bytes of it move for c.stall. The caller closes the body of the answer.
func (c *client) sendOnce(ctx context.Context, k call, address *url.URL) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	watch := func(body io.ReadCloser, what string) *watched {
		timer := time.AfterFunc(c.stall, func() { cancel(fmt.Errorf("no bytes %s for %v", what, c.stall)) })
		return &watched{ReadCloser: body, ctx: ctx, cancel: cancel, timer: timer, limit: c.stall}
	}
	req, err := http.NewRequestWithContext(ctx, k.method, address.String(), nil)
	if err != nil {
		cancel(nil)
		return nil, err
	}
	if k.header != nil {
		req.Header = k.header.Clone()
	}
	if k.body != nil {
		body, size := k.body()
		sent := watch(io.NopCloser(body), "were taken")
		defer sent.timer.Stop() // once there is an answer, no more of the body is awaited
		req.Body, req.ContentLength = sent, size
	}
	req.Header.Set("User-Agent", "onering")
	req.Header.Set("Accept-Encoding", "identity") // lengths and ranges are those of the file
	if c.token != "" && !k.signed && sameOrigin(address, c.endpoint) {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.transport.RoundTrip(req)
	if err != nil {
		err = cmp.Or(context.Cause(ctx), err) // the stall, if it was one
		cancel(nil)
		return nil, err
	}
	resp.Body = answered{watch(resp.Body, "came")} // closing it ends the request and the watch
	return resp, nil
}

// watched is a body that postpones the timeout of its request with each read.
type watched struct {
	io.ReadCloser
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
	limit  time.Duration
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	if err == nil {
		w.timer.Reset(w.limit)
		return n, nil
	}
	w.timer.Stop()
	if err != io.EOF {
		err = network.Plain(cmp.Or(context.Cause(w.ctx), err))
	}
	return n, err
}

// answered is the body of an answer; closing it ends the request.
type answered struct{ *watched }

func (a answered) Close() error {
	a.timer.Stop()
	defer a.cancel(nil)
	return a.watched.Close()
}

func sameOrigin(a, b *url.URL) bool {
	return a.Scheme == b.Scheme && strings.EqualFold(a.Hostname(), b.Hostname()) && port(a) == port(b)
}

func port(u *url.URL) string {
	if p := u.Port(); p != "" {
		return p
	}
	return map[string]string{"http": "80", "https": "443"}[u.Scheme]
}

// withoutQuery returns an address for messages: the query may hold a signature.
func withoutQuery(u *url.URL) string { return u.Scheme + "://" + u.Host + u.EscapedPath() }

// request makes a call, and repeats it after a wait if a later attempt may succeed. It
// never returns an answer with a retryable status; the answer is nil if k.beforeRepeat says that
// the call is done. what names the wanted thing in errors.
func (c *client) request(ctx context.Context, r repo, what string, k call) (*http.Response, error) {
	for attempt := 1; ; attempt++ {
		resp, wait, err := c.attempt(ctx, r, what, k)
		if err == nil || wait == noRepeat {
			return resp, err
		}
		if wait == 0 { // the server does not say
			wait = backoff(attempt)
		}
		if attempt >= c.attempts {
			return nil, err
		}
		c.notice(fmt.Sprintf("%v; try %d of %d is in %v", err, attempt+1, c.attempts, wait.Round(100*time.Millisecond)))
		if err := c.sleep(ctx, wait); err != nil {
			return nil, err
		}
		if k.beforeRepeat != nil {
			if done, err := k.beforeRepeat(); done || err != nil {
				return nil, err
			}
		}
	}
}

// noRepeat is the wait of an attempt after which another one would fail, too.
const noRepeat time.Duration = -1

// attempt makes a call once, with its redirects, and has k.readAnswer read the answer. With an error it
// returns the wait before a repetition, which may be noRepeat; 0 leaves it to the caller.
func (c *client) attempt(ctx context.Context, r repo, what string, k call) (*http.Response, time.Duration, error) {
	resp, err := c.send(ctx, k)
	if err == nil && (network.Passing(resp.StatusCode) || slices.Contains(k.repeatStatuses, resp.StatusCode)) {
		wait, ok := network.RetryAfter(resp.Header, time.Now())
		err = c.refusal(r, what, resp)
		resp.Body.Close()
		if ok && wait > longestWait {
			return nil, noRepeat, fmt.Errorf("%w; it asks to wait %v before the next request", err, wait.Round(time.Second))
		}
		if ok {
			wait = max(wait, 1) // at once, where 0 would be the caller's choice
		}
		return nil, wait, err
	}
	status := 0
	if err == nil && k.readAnswer != nil {
		status = resp.StatusCode
		if err = k.readAnswer(resp); err != nil {
			resp.Body.Close()
		}
	}
	if err == nil {
		return resp, 0, nil
	}
	if ctx.Err() != nil {
		return nil, noRepeat, ctx.Err()
	}
	if _, ok := errors.AsType[*fault](err); !ok {
		err = &fault{Repo: r.id, Status: status, Err: err, Detail: c.withoutToken(fmt.Sprintf("%s: %v", what, err))}
	}
	if isLasting(err) {
		return nil, noRepeat, err
	}
	return nil, 0, err
}

// readBody reads the body of an answer, of at most limit bytes.
func readBody(resp *http.Response, limit int64) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	if err == nil && int64(len(text)) > limit {
		err = permanent{fmt.Errorf("more than %d MiB", limit>>20)}
	}
	return text, err
}

// backoff returns how long to wait after a failed attempt. It is partly random, so
// that many clients do not return at the same time.
func backoff(attempt int) time.Duration {
	d := firstWait << (attempt - 1)
	return d/2 + rand.N(d)
}

// addressOf returns an address below the endpoint. Slashes inside a part are escaped.
func (c *client) addressOf(parts ...string) *url.URL {
	u := *c.endpoint
	for _, p := range parts {
		u.RawPath = u.EscapedPath() + "/" + url.PathEscape(p)
		u.Path += "/" + p
	}
	return &u
}

// askJSON makes a call whose answer is JSON, and reads it into a value. what names the answer in errors.
func (c *client) askJSON(ctx context.Context, r repo, what string, k call, into any) error {
	k.readAnswer = func(resp *http.Response) error {
		if resp.StatusCode >= 400 {
			return permanent{c.refusal(r, what, resp)}
		}
		text, err := readBody(resp, maxAnswer)
		if err == nil {
			if err = strict.JSON(text, into); err != nil {
				err = permanent{err}
			}
		}
		if err != nil {
			err = &fault{Repo: r.id, Status: resp.StatusCode, Err: err, Detail: c.withoutToken(fmt.Sprintf("%s from %s: %v", what, c.endpoint.Host, err))}
		}
		return err
	}
	return c.callToEnd(ctx, r, what, k)
}

// callToEnd makes a call whose answer is read completely when it returns.
func (c *client) callToEnd(ctx context.Context, r repo, what string, k call) error {
	resp, err := c.request(ctx, r, what, k)
	if resp != nil {
		resp.Body.Close()
	}
	return err
}

// An info is the API's description of a repository at a revision.
type info struct {
	commit  string
	files   []string
	private bool // the API says that it is private
}

// describe asks for the commit of a revision and the names of its files.
func (c *client) describe(ctx context.Context, r repo) (info, error) {
	const what = "the list of files"
	var answer struct {
		SHA      string `json:"sha"`
		Private  bool   `json:"private"`
		Siblings []struct {
			Name string `json:"rfilename"`
		} `json:"siblings"`
	}
	if err := c.askJSON(ctx, r, what, call{method: http.MethodGet, address: c.apiAddress(r, "revision", r.revision)}, &answer); err != nil {
		return info{}, err
	}
	broken := func(why error) error {
		return &fault{Repo: r.id, Status: http.StatusOK, Err: why, Detail: c.withoutToken(fmt.Sprintf("%s from %s: %v", what, c.endpoint.Host, why))}
	}
	// The commit and the names become names of folders and files in the cache.
	if !namePart.MatchString(answer.SHA) {
		return info{}, broken(fmt.Errorf("%.80q is not a commit", answer.SHA))
	}
	out := info{commit: answer.SHA, private: answer.Private}
	for _, f := range answer.Siblings {
		if !isRelative(f.Name) {
			return info{}, broken(fmt.Errorf("file name %.200q is outside of the folder", f.Name))
		}
		out.files = append(out.files, f.Name)
	}
	return out, nil
}

// apiAddress returns an address of the API about a repository.
func (c *client) apiAddress(r repo, parts ...string) *url.URL {
	return c.addressOf(append(append([]string{"api", r.plural}, strings.Split(r.id, "/")...), parts...)...)
}

// A remote is a file on the hub.
type remote struct {
	name    string
	address *url.URL
	etag    string // the checksum, without quotes: SHA-256, or git's SHA-1
	size    int64  // -1 if unknown
}

// stat asks for a file's address, checksum and size. A file without a checksum is an error.
func (c *client) stat(ctx context.Context, r repo, commit, name string) (remote, error) {
	parts := append(r.address(), "resolve", commit)
	f := remote{name: name, address: c.addressOf(append(parts, strings.Split(name, "/")...)...), size: -1}
	// Taken from the first answer that has each. X-Linked ones are of the file, the others perhaps of a redirect to it.
	var linked, etag, linkedSize string
	resp, err := c.request(ctx, r, name, call{method: http.MethodHead, address: f.address, stopAtRedirect: true, onHeader: func(h http.Header) {
		linked, etag = cmp.Or(linked, h.Get("X-Linked-Etag")), cmp.Or(etag, h.Get("Etag"))
		linkedSize = cmp.Or(linkedSize, h.Get("X-Linked-Size"))
	}})
	if err != nil {
		return f, err
	}
	resp.Body.Close()
	if resp.StatusCode >= 400 {
		return f, c.refusal(r, name, resp)
	}
	f.etag = strings.Trim(strings.TrimPrefix(cmp.Or(linked, etag), "W/"), `"`) // W/ marks a weak one
	if n, err := strconv.ParseInt(linkedSize, 10, 64); err == nil && n >= 0 {
		f.size = n
	} else if resp.StatusCode == http.StatusOK {
		f.size = resp.ContentLength
	}
	if digest(f.etag) == nil {
		return f, &fault{Repo: r.id, Status: resp.StatusCode, Err: errors.New("no checksum"),
			Detail: c.withoutToken(fmt.Sprintf("%s gives no checksum of %s (ETag %.80q), so the file is not used", c.endpoint.Host, name, f.etag))}
	}
	return f, nil
}
