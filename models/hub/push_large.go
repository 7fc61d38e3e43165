package hub

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"onering/internal/files"
	network "onering/internal/remote"
)

// Large files go to the hub's storage by the batch API of Git LFS, whose answer says
// where to send a file: in one piece, or in parts of chunk_size bytes.

// maxState bounds the file with the state of an interrupted upload, in bytes.
const maxState = 16 << 20

// maxUploads is how often the upload of a file may begin: signatures of its addresses may
// expire during it.
const maxUploads = 3

// An object is the batch API's answer about a file.
type object struct {
	OID     string
	Actions *struct{ Upload, Verify *action }
	Error   *struct{ Message string }
}

// An action is a request that the batch API asks for.
type action struct {
	Href   string
	Header map[string]any
}

// An upload says where a file is sent, and which parts were sent. A file stores it.
type upload struct {
	Address string   // address for the whole file, or for joining the parts
	Chunk   int64    // bytes of a part; 0 sends the file in one piece
	Parts   []string // addresses of the parts
	ETags   []string // ETags of the parts that were sent; "" for the others
}

// sendLarge makes the hub store the large files that it does not have.
func (p *push) sendLarge() error {
	var todo []*outgoing
	for _, f := range p.files {
		if f.large && f.pending() {
			todo = append(todo, f)
		}
	}
	if len(todo) == 0 {
		return nil
	}
	if err := os.MkdirAll(p.stateFolder, 0o700); err != nil {
		return fmt.Errorf("hub: %w", err)
	}
	unlock, err := files.Lock(p.ctx, p.stateFile("", ".lock"), func() error { // one for all files of the repository
		p.notice("another process pushes to " + p.repo.id + ": waiting for it")
		return nil
	})
	if err != nil {
		return fmt.Errorf("hub: %w", err)
	}
	defer unlock()
	sent := map[string]string{} // two files may have the same content
	for group := range slices.Chunk(todo, groupSize) {
		objects, err := p.askDestinations(group)
		if err != nil {
			return err
		}
		for _, f := range group {
			if f.delivered = sent[f.oid]; f.delivered != "" {
				continue
			}
			if err := p.sendOne(f, objects[f.oid]); err != nil {
				return err
			}
			sent[f.oid] = f.delivered
		}
	}
	return nil
}

// askDestinations asks where to send files, and returns the answers by checksum. One without Actions says that the hub has the file.
func (p *push) askDestinations(group []*outgoing) (map[string]object, error) {
	type wanted struct {
		OID  string `json:"oid"`
		Size int64  `json:"size"`
	}
	var want []wanted
	for _, f := range group {
		if w := (wanted{f.oid, f.Size}); !slices.Contains(want, w) {
			want = append(want, w)
		}
	}
	owner, name, _ := strings.Cut(p.repo.id, "/")
	k := withJSON(call{address: p.addressOf(owner, name+".git", "info", "lfs", "objects", "batch"), header: lfsHeader()}, map[string]any{
		"operation": "upload", "transfers": []string{"basic", "multipart"}, "hash_algo": "sha256",
		"ref": map[string]string{"name": p.repo.revision}, "objects": want,
	})
	var answer struct{ Objects []object }
	if err := p.askJSON(p.ctx, p.repo, "where to send the large files", k, &answer); err != nil {
		return nil, err
	}
	objects := map[string]object{}
	for _, o := range answer.Objects {
		objects[o.OID] = o
	}
	for _, f := range group {
		o, ok := objects[f.oid]
		switch {
		case !ok:
			return nil, p.wrongAnswer("does not say where to send %s", f.Name)
		case o.Error != nil:
			return nil, &fault{Repo: p.repo.id, Err: errors.New("refused"),
				Detail: p.withoutToken(fmt.Sprintf("%s does not take %s: %.200s", p.endpoint.Host, f.Name, o.Error.Message))}
		case o.Actions != nil && o.Actions.Upload == nil:
			return nil, p.wrongAnswer("gives no address for %s", f.Name)
		}
	}
	return objects, nil
}

func lfsHeader() http.Header {
	const kind = "application/vnd.git-lfs+json"
	return http.Header{"Accept": {kind}, "Content-Type": {kind}}
}

// sendOne sends a file, or the missing parts of an interrupted upload, to where o says. If addresses have expired, it
// asks for new ones and begins again, up to maxUploads times.
func (p *push) sendOne(f *outgoing, o object) error {
	for begun := 1; ; begun++ {
		if o.Actions == nil { // the hub has the file
			p.forget(f)
			p.options.Progress(f.Name, f.Size, f.Size)
			f.delivered = cmp.Or(f.delivered, "stored") // it stays "sent" if the hub had to be asked again
			return nil
		}
		f.delivered = "sent"   // if sending fails, so does the whole push
		u, saved := p.saved(f) // from an earlier push, which was interrupted
		if !saved {
			var err error
			if u, err = p.planUpload(f, *o.Actions.Upload); err != nil {
				return err
			}
		}
		err := p.transfer(f, u)
		if err == nil {
			p.forget(f)
			return p.verify(f, o.Actions.Verify)
		}
		if e, ok := errors.AsType[*fault](err); !ok || e.Status < 400 || e.Status > 499 || network.Passing(e.Status) {
			return err // the state stays for a later push
		}
		// The addresses have expired, or the upload has ended.
		p.forget(f)
		if begun >= maxUploads && !saved { // saved is false by then, unless forget could not remove the state
			return err
		}
		p.notice(fmt.Sprintf("%v; asking for new addresses", err))
		objects, err := p.askDestinations([]*outgoing{f})
		if err != nil {
			return err
		}
		o = objects[f.oid]
	}
}

// planUpload reads where to send a file: to one address, or in parts if the action's header has chunk_size. The address of part
// number n, from 1 on, is then the header's member "n".
func (p *push) planUpload(f *outgoing, a action) (upload, error) {
	u := upload{Address: a.Href}
	text := func(key string) string {
		switch v := a.Header[key].(type) {
		case string:
			return v
		case float64:
			return strconv.FormatInt(int64(v), 10)
		}
		return ""
	}
	if text("chunk_size") == "" {
		return u, nil
	}
	chunk, err := strconv.ParseInt(text("chunk_size"), 10, 64)
	if err != nil || chunk <= 0 {
		return u, p.wrongAnswer("wants %s in parts of %.40q bytes", f.Name, text("chunk_size"))
	}
	addresses := map[int]string{}
	for key := range a.Header {
		if n, err := strconv.Atoi(key); err == nil {
			addresses[n] = text(key)
		}
	}
	u.Chunk, u.ETags = chunk, make([]string, len(addresses))
	for n := range len(addresses) {
		u.Parts = append(u.Parts, addresses[n+1])
	}
	if int64(len(u.Parts)) != (f.Size+chunk-1)/chunk || slices.Contains(u.Parts, "") {
		return u, p.wrongAnswer("gives %d addresses for the parts of %s, which are %d", len(u.Parts), f.Name, (f.Size+chunk-1)/chunk)
	}
	return u, nil
}

// transfer sends a file in one piece, or its missing parts, and then has the storage join them. After each part it saves
// u, to which it adds the part's ETag, so that another push can continue there.
func (p *push) transfer(f *outgoing, u upload) error {
	c, err := f.open()
	if err != nil {
		return err
	}
	defer c.Close()
	if u.Chunk == 0 {
		_, err := p.sendBytes(f, c, u.Address, 0, f.Size)
		return err
	}
	type part struct {
		Number int    `json:"partNumber"`
		ETag   string `json:"etag"`
	}
	var parts []part
	for i, address := range u.Parts {
		if u.ETags[i] == "" {
			from := int64(i) * u.Chunk
			if u.ETags[i], err = p.sendBytes(f, c, address, from, min(u.Chunk, f.Size-from)); err != nil {
				return err
			}
			if u.ETags[i] == "" {
				return p.wrongAnswer("answers part %d of %s without an ETag", i+1, f.Name)
			}
			if err := p.save(f, u); err != nil {
				return err
			}
		}
		parts = append(parts, part{i + 1, u.ETags[i]})
	}
	address, err := p.uploadAddress(u.Address)
	if err != nil {
		return err
	}
	k := withJSON(call{address: address, header: lfsHeader(), signed: true}, map[string]any{"oid": f.oid, "parts": parts})
	return p.callOnly("putting "+f.Name+" together", k, nil)
}

// sendBytes sends size bytes of a file and returns the ETag of the answer.
func (p *push) sendBytes(f *outgoing, c content, to string, from, size int64) (etag string, err error) {
	address, err := p.uploadAddress(to)
	if err != nil {
		return "", err
	}
	k := call{method: http.MethodPut, address: address, signed: true, repeatStatuses: []int{http.StatusBadRequest}} // S3 answers a slow request with this status
	k.body = func() (io.Reader, int64) {
		report := func(done int64) { p.options.Progress(f.Name, done, f.Size) }
		return files.Counted(io.NewSectionReader(c, from, size), from, report), size
	}
	err = p.callOnly(f.Name, k, func(resp *http.Response) { etag = resp.Header.Get("ETag") })
	return etag, err
}

// callOnly makes a call whose answer is not needed.
func (p *push) callOnly(what string, k call, seen func(*http.Response)) error {
	k.readAnswer = func(resp *http.Response) error {
		if resp.StatusCode >= 400 {
			return permanent{&fault{Repo: p.repo.id, Status: resp.StatusCode, Err: errors.New("refused"),
				Detail: p.withoutToken(fmt.Sprintf("%s: %s answers %.100s", what, k.address.Host, resp.Status))}}
		}
		if seen != nil {
			seen(resp)
		}
		// Read the answer to its end, so that the connection can be used again.
		_, err := readBody(resp, 1<<20)
		return err
	}
	return p.callToEnd(p.ctx, p.repo, what, k)
}

// verify asks the hub to check that it stores a file.
func (p *push) verify(f *outgoing, a *action) error {
	if a == nil {
		return nil
	}
	address, err := p.uploadAddress(a.Href)
	if err != nil {
		return err
	}
	k := withJSON(call{address: address, header: lfsHeader()}, map[string]any{"oid": f.oid, "size": f.Size})
	return p.callOnly("the check of "+f.Name, k, nil)
}

// uploadAddress reads an address from the hub. If the endpoint is another one, such as a proxy,
// it replaces the hub's own host.
func (p *push) uploadAddress(text string) (*url.URL, error) {
	if rest, ok := strings.CutPrefix(text, defaultEndpoint+"/"); ok {
		text = p.endpoint.String() + "/" + rest
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.User != nil || u.Scheme != "http" && u.Scheme != "https":
		return nil, p.wrongAnswer("gives an address for an upload that is not one of the web")
	case u.Scheme == "http" && p.endpoint.Scheme == "https":
		return nil, p.wrongAnswer("gives an address for an upload without encryption: %s", withoutQuery(u))
	}
	return u, nil
}

// stateFile names the file for the state of an upload to the repository.
func (p *push) stateFile(oid, end string) string {
	sum := sha256.Sum256([]byte(p.endpoint.String() + "\n" + p.repo.id + "\n" + oid))
	return filepath.Join(p.stateFolder, hex.EncodeToString(sum[:16])+end)
}

// saved returns the interrupted upload of a file. ok is false if there is none or its state cannot be read.
func (p *push) saved(f *outgoing) (u upload, ok bool) {
	file, err := os.Open(p.stateFile(f.oid, ".json"))
	if err != nil {
		return u, false
	}
	defer file.Close()
	if json.NewDecoder(io.LimitReader(file, maxState)).Decode(&u) != nil || u.Chunk <= 0 {
		return u, false
	}
	n := int((f.Size + u.Chunk - 1) / u.Chunk)
	return u, len(u.Parts) == n && len(u.ETags) == n
}

func (p *push) save(f *outgoing, u upload) error {
	err := files.WriteFile(p.stateFile(f.oid, ".json"), func(w io.Writer) error { return json.NewEncoder(w).Encode(u) })
	if err != nil {
		return fmt.Errorf("hub: what was sent: %w", err)
	}
	return nil
}

// forget removes the file of save. If that fails, a later push tries the old state and is refused.
func (p *push) forget(f *outgoing) { os.Remove(p.stateFile(f.oid, ".json")) }
