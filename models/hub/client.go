package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const (
	maxAttempts = 5
	// firstWait doubles with each attempt.
	firstWait = time.Second
	// longestWait bounds what a server may ask for.
	longestWait  = 5 * time.Minute
	maxRedirects = 10
	maxAnswer    = 64 << 20 // bytes of an answer of the API
	// maxUnstated bounds a file whose size the hub does not state, and files
	// besides weights and data, in bytes.
	maxUnstated = 512 << 20
)

// A body may take any time as long as bytes keep coming.
const (
	answerTimeout = 30 * time.Second // until the header of the answer
	stallTimeout  = time.Minute      // without any bytes of the body
)

// A client talks to one endpoint.
type client struct {
	endpoint    *url.URL
	token       string
	tokenSource string
	transport   http.RoundTripper
	attempts    int
	notice      func(string)
	wait        func(context.Context, time.Duration) error
	stall       time.Duration // how long a body may bring no bytes
	unstated    int64         // maxUnstated
}

func newClient(s settings, o Options) *client {
	t := o.Transport
	if t == nil {
		d := http.DefaultTransport.(*http.Transport).Clone()
		d.ResponseHeaderTimeout = answerTimeout
		d.DisableCompression = true // lengths and ranges are those of the file
		t = d
	}
	c := &client{
		endpoint: s.endpoint, token: s.token, tokenSource: s.source, transport: t,
		attempts: maxAttempts, notice: o.Notice, wait: sleep, stall: stallTimeout, unstated: maxUnstated,
	}
	if o.wait != nil {
		c.wait = o.wait
	}
	if o.stall > 0 {
		c.stall = o.stall
	}
	if o.unstated > 0 {
		c.unstated = o.unstated
	}
	return c
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// send makes one request and follows redirects. If stay is set, it follows only
// those within the endpoint and returns the answer that redirects to another
// host. The token is sent only to the endpoint. seen, if not nil, is called with
// the header of each answer.
func (c *client) send(ctx context.Context, method string, address *url.URL, header http.Header, stay bool, seen func(http.Header)) (*http.Response, error) {
	for range maxRedirects {
		req, err := http.NewRequestWithContext(ctx, method, address.String(), nil)
		if err != nil {
			return nil, err
		}
		req.Header = header.Clone()
		if req.Header == nil {
			req.Header = http.Header{}
		}
		req.Header.Set("User-Agent", "onering")
		req.Header.Set("Accept-Encoding", "identity")
		if c.token != "" && sameOrigin(address, c.endpoint) {
			req.Header.Set("Authorization", "Bearer "+c.token)
		}
		resp, err := c.transport.RoundTrip(req)
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", method, withoutQuery(address), err)
		}
		if seen != nil {
			seen(resp.Header)
		}
		if resp.StatusCode < 300 || resp.StatusCode > 399 || resp.StatusCode == http.StatusNotModified {
			return resp, nil
		}
		to, err := address.Parse(resp.Header.Get("Location"))
		if err != nil || resp.Header.Get("Location") == "" || to.Scheme != "http" && to.Scheme != "https" {
			resp.Body.Close()
			return nil, permanent{fmt.Errorf("%s %s: a redirect without a web address", method, withoutQuery(address))}
		}
		if address.Scheme == "https" && to.Scheme == "http" {
			resp.Body.Close()
			return nil, permanent{fmt.Errorf("%s %s: a redirect from https to http", method, withoutQuery(address))}
		}
		if stay && !sameOrigin(to, c.endpoint) {
			return resp, nil
		}
		resp.Body.Close()
		address = to
	}
	return nil, permanent{fmt.Errorf("%s %s: more than %d redirects", method, withoutQuery(address), maxRedirects)}
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

// request sends a request, and sends it again after a wait if a later attempt may
// succeed. The status of the answer that it returns is not retryable.
func (c *client) request(ctx context.Context, r repo, what, method string, address *url.URL, header http.Header, stay bool, seen func(http.Header)) (*http.Response, error) {
	for attempt := 1; ; attempt++ {
		resp, err := c.send(ctx, method, address, header, stay, seen)
		if err == nil && !retryable(resp.StatusCode) {
			return resp, nil
		}
		wait := backoff(attempt)
		if err == nil {
			asked, ok := retryAfter(resp.Header.Get("Retry-After"), time.Now())
			err = c.refusal(r, what, resp)
			resp.Body.Close()
			if ok {
				wait = asked
			}
			if wait > longestWait {
				return nil, fmt.Errorf("%w; it asks to wait %v before the next request", err, wait.Round(time.Second))
			}
		} else {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			last := lasting(err)
			err = &Error{Repo: r.id, Err: err, Detail: c.hide(fmt.Sprintf("%s: %v", what, err))}
			if last {
				return nil, err
			}
		}
		if attempt >= c.attempts {
			return nil, err
		}
		c.notice(fmt.Sprintf("%v; trying again in %v", err, wait.Round(100*time.Millisecond)))
		if err := c.wait(ctx, wait); err != nil {
			return nil, err
		}
	}
}

// backoff returns how long to wait after a failed attempt. It is partly random, so
// that many clients do not return at the same time.
func backoff(attempt int) time.Duration {
	d := firstWait << (attempt - 1)
	return d/2 + rand.N(d)
}

// retryAfter reads the header of that name: seconds or a date.
func retryAfter(text string, now time.Time) (time.Duration, bool) {
	if seconds, err := strconv.ParseUint(strings.TrimSpace(text), 10, 31); err == nil {
		return time.Duration(seconds) * time.Second, true
	}
	if t, err := http.ParseTime(text); err == nil {
		return max(0, t.Sub(now)), true
	}
	return 0, false
}

// at returns an address below the endpoint. The slashes of a part are escaped, too.
func (c *client) at(parts ...string) *url.URL {
	u := *c.endpoint
	for _, p := range parts {
		u.RawPath = u.EscapedPath() + "/" + url.PathEscape(p)
		u.Path += "/" + p
	}
	return &u
}

// An info is what the API says of a repository at a revision.
type info struct {
	commit string
	files  []string
}

// info asks for the commit of a revision and the names of its files.
func (c *client) info(ctx context.Context, r repo) (info, error) {
	parts := append([]string{"api", r.plural}, strings.Split(r.id, "/")...)
	address := c.at(append(parts, "revision", r.revision)...)
	resp, err := c.request(ctx, r, "the list of files", http.MethodGet, address, nil, false, nil)
	if err != nil {
		return info{}, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return info{}, c.refusal(r, "the list of files", resp)
	}
	var answer struct {
		SHA      string `json:"sha"`
		Siblings []struct {
			Name string `json:"rfilename"`
		} `json:"siblings"`
	}
	broken := func(why error) error {
		return &Error{Repo: r.id, Status: resp.StatusCode, Err: why, Detail: c.hide(fmt.Sprintf("the list of files from %s: %v", c.endpoint.Host, why))}
	}
	// A body that brings no end is ended.
	defer time.AfterFunc(c.stall, func() { resp.Body.Close() }).Stop()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err == nil && len(text) > maxAnswer {
		err = fmt.Errorf("more than %d MiB", maxAnswer>>20)
	}
	if err == nil {
		err = json.Unmarshal(text, &answer)
	}
	if err != nil {
		return info{}, broken(err)
	}
	// The commit and the names become names of folders and files in the cache.
	if !namePart.MatchString(answer.SHA) {
		return info{}, broken(fmt.Errorf("%.80q is not a commit", answer.SHA))
	}
	out := info{commit: answer.SHA}
	for _, f := range answer.Siblings {
		if !isRelative(f.Name) {
			return info{}, broken(fmt.Errorf("file name %.200q is outside of the folder", f.Name))
		}
		out.files = append(out.files, f.Name)
	}
	return out, nil
}

// A remote is a file on the hub.
type remote struct {
	name string
	at   *url.URL
	etag string // the checksum, without quotes: SHA-256, or git's SHA-1
	size int64  // -1 if unknown
}

// stat asks for a file's checksum and size.
func (c *client) stat(ctx context.Context, r repo, commit, name string) (remote, error) {
	parts := append(r.address(), "resolve", commit)
	f := remote{name: name, at: c.at(append(parts, strings.Split(name, "/")...)...), size: -1}
	var linked, etag, linkedSize string
	first := func(value *string, h http.Header, key string) {
		if *value == "" {
			*value = h.Get(key)
		}
	}
	resp, err := c.request(ctx, r, name, http.MethodHead, f.at, nil, true, func(h http.Header) {
		first(&linked, h, "X-Linked-Etag")
		first(&linkedSize, h, "X-Linked-Size")
		first(&etag, h, "Etag")
	})
	if err != nil {
		return f, err
	}
	resp.Body.Close()
	if resp.StatusCode >= 400 {
		return f, c.refusal(r, name, resp)
	}
	if linked != "" {
		etag = linked
	}
	f.etag = strings.Trim(strings.TrimPrefix(etag, "W/"), `"`)
	if n, err := strconv.ParseInt(linkedSize, 10, 64); err == nil && n >= 0 {
		f.size = n
	} else if resp.StatusCode == http.StatusOK {
		f.size = resp.ContentLength
	}
	if digest(f.etag) == nil {
		return f, &Error{Repo: r.id, Status: resp.StatusCode, Err: errors.New("no checksum"), Detail: c.hide(fmt.Sprintf("%s gives no checksum of %s (ETag %.80q), so the file is not used", c.endpoint.Host, name, f.etag))}
	}
	return f, nil
}
