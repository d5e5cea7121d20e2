import random
# (a) trade of store_sums
lanes=range(32)
def D(lane): # entries (row, col)
    g,q=lane//4,lane%4
    return [(g+ (i//2%2)*8, (i//4)*8+2*q+i%2) for i in range(8)]
S=[D(l) for l in lanes]
fours=[[None]*8 for _ in lanes]; eight=[[None]*8 for _ in lanes]
for i in range(4):
    give=[S[l][i] if l&1 else S[l][4+i] for l in lanes]
    for l in lanes:
        odd=l&1; mine=S[l][4+i] if odd else S[l][i]; other=give[l^1]
        fours[l][i//2*4+i%2]=other if odd else mine
        fours[l][i//2*4+2+i%2]=mine if odd else other
for i in range(4):
    give=[fours[l][i] if l&2 else fours[l][4+i] for l in lanes]
    for l in lanes:
        high=l&2; mine=fours[l][4+i] if high else fours[l][i]; other=give[l^2]
        eight[l][i]=other if high else mine; eight[l][4+i]=mine if high else other
for l in lanes:
    tok=l//4+(8 if l&2 else 0); row=8 if l&1 else 0
    assert eight[l]==[(tok,row+i) for i in range(8)],(l,eight[l])
print("trade ok")
# (b) ring with sharing
class Bar:
    def __init__(s,n): s.n=n; s.pend=n; s.tx=0; s.phase=0
    def check(s):
        if s.pend==0 and s.tx==0: s.phase+=1; s.pend=s.n
    def arrive(s): assert s.pend>0; s.pend-=1; s.check()
    def expect(s,b): s.tx+=b; assert s.pend>0; s.pend-=1; s.check()
    def complete(s,b): s.tx-=b; s.check()
    def ended(s,par): return (s.phase-1)%2==par   # phase with this parity has ended
def run(share,depth,steps,laps,seed):
    rnd=random.Random(seed); W=8
    full=[[Bar(1) for _ in range(depth)] for _ in range(share)]; empty=[[Bar(share*W) for _ in range(depth)] for _ in range(share)]
    mem=[[[None]*(share+1) for _ in range(depth)] for _ in range(share)]
    flight=[]
    def producer(c):
        early=min(depth,steps)
        for st in range(early):
            full[c][st].expect(share+1)
            for d in range(share): flight.append((d,st,c,(0,st)))
            yield
        for st in range(early): flight.append((c,st,share,(0,st))); yield
        slot=par=copied=0
        for lap in range(laps):
            for st in range(steps):
                if copied>=early:
                    while not empty[c][slot].ended(par^1): yield
                    full[c][slot].expect(share+1)
                    for d in range(share): flight.append((d,slot,c,(lap,st)))
                    flight.append((c,slot,share,(lap,st)))
                copied+=1; slot+=1
                if slot==depth: slot=0; par^=1
                yield
        for i in range(depth):
            while not empty[c][slot].ended(par^1): yield
            slot+=1
            if slot==depth: slot=0; par^=1
        assert all(b.pend==b.n for b in empty[c])
    def consumer(c,w):
        slot=par=0
        for lap in range(laps):
            before=None
            for st in range(steps):
                while not full[c][slot].ended(par): yield
                assert mem[c][slot]==[(lap,st)]*(share+1),(mem[c][slot],lap,st)
                if before is not None:
                    yield
                    for d in range(share): empty[d][before].arrive(); yield
                before=slot; slot+=1
                if slot==depth: slot=0; par^=1
                yield
            for d in range(share): empty[d][before].arrive()
    live=[producer(c) for c in range(share)]+[consumer(c,w) for c in range(share) for w in range(W)]
    n=0
    while live:
        n+=1; assert n<3000000,"deadlock"
        if flight and rnd.random()<.3:
            d,s,p,v=flight.pop(rnd.randrange(len(flight))); mem[d][s][p]=v; full[d][s].complete(1)
        g=rnd.choice(live)
        try: next(g)
        except StopIteration: live.remove(g)
    assert not flight
for share in (1,2,4):
    for depth,steps,laps in ((5,3,1),(5,7,2),(6,40,3),(7,7,2),(3,1,4)):
        for seed in range(4): run(share,depth,steps,laps,seed)
print("ring ok")
