# The native twin of pending.py. A question is sent like a coroutine, by the slot that `await` and tasks use, so that an
# answer that is there at once costs neither a frame nor a StopIteration.

cdef extern from *:
    """
    typedef int (*headgate_sends)(PyObject* self, PyObject* value, PyObject** answer);
    static headgate_sends headgate_send_asked, headgate_send_asked_core;
    static PySendResult headgate_sent(int sent) {
        return sent < 0 ? PYGEN_ERROR : sent ? PYGEN_NEXT : PYGEN_RETURN;
    }
    static PySendResult headgate_am_send_asked(PyObject* self, PyObject* value, PyObject** answer) {
        *answer = NULL;
        return headgate_sent(headgate_send_asked(self, value, answer));
    }
    static PySendResult headgate_am_send_asked_core(PyObject* self, PyObject* value, PyObject** answer) {
        *answer = NULL;
        return headgate_sent(headgate_send_asked_core(self, value, answer));
    }
    static void headgate_send_by(PyObject* asked, headgate_sends send, PyObject* asked_core, headgate_sends send_core) {
        headgate_send_asked = send;
        headgate_send_asked_core = send_core;
        ((PyTypeObject*) asked)->tp_as_async->am_send = headgate_am_send_asked;
        ((PyTypeObject*) asked_core)->tp_as_async->am_send = headgate_am_send_asked_core;
    }
    """
    ctypedef int (*headgate_sends)(PyObject* self, PyObject* value, PyObject** answer) except -1
    void headgate_send_by(object asked, headgate_sends send, object asked_core, headgate_sends send_core)
    ctypedef enum PySendResult:
        PYGEN_RETURN, PYGEN_ERROR, PYGEN_NEXT
    PySendResult PyIter_Send(PyObject* coroutine, PyObject* value, PyObject** answer)
    void Py_INCREF(PyObject* thing)


@cython.final
@cython.freelist(64)
cdef class PendingCall:
    """A question that nobody has awaited yet. It has no truth: there is no answer."""

    cdef object function
    cdef tuple args
    cdef dict named
    cdef bint awaits
    cdef bint begun
    cdef object coroutine
    cdef object entered

    def __await__(self):
        return self

    async def __aenter__(self):
        """`async with` awaits the answer, and enters it."""
        self.entered = await self
        return await self.entered.__aenter__()

    async def __aexit__(self, kind, error, trace):
        return await self.entered.__aexit__(kind, error, trace)

    def __next__(self):
        return self.send(None)

    cdef object begin(self):
        if self.begun:
            raise RuntimeError(AWAITED_TWICE)
        self.begun = True
        return self.function(*self.args, **self.named)

    def send(self, value):
        """As of a coroutine."""
        if not self.awaits:
            raise StopIteration(self.begin())
        if self.coroutine is None:
            self.coroutine = self.begin()
        return self.coroutine.send(value)

    def throw(self, *error):
        """As of a coroutine."""
        if self.coroutine is not None:
            return self.coroutine.throw(*error)
        self.begun = True
        raise error[1] if len(error) > 1 and error[1] is not None else error[0]

    def close(self):
        """As of a coroutine."""
        if self.coroutine is not None:
            self.coroutine.close()
        self.begun = True

    def __bool__(self):
        self.begun = True
        raise InvalidCall(NOT_AWAITED.format(self.function.__name__))

    def __dealloc__(self):
        if not self.begun and self.function is not None:
            warn_of_no_await(self.function.__name__)


cdef int send_pending(PyObject* self, PyObject* value, PyObject** answer) except -1:
    """1 where it waits, 0 where it has answered."""
    cdef PendingCall asked = <PendingCall> self
    if not asked.awaits:
        given = asked.begin()
        answer[0] = <PyObject*> given
        Py_INCREF(answer[0])
        return 0
    if asked.coroutine is None:
        asked.coroutine = asked.begin()
    cdef PySendResult sent = PyIter_Send(<PyObject*> asked.coroutine, value, answer)
    return -1 if sent == PYGEN_ERROR else sent == PYGEN_NEXT


@cython.final
@cython.no_gc
@cython.freelist(64)
cdef class PendingDecision:
    """The same about one key, of a decider that answers at once: the hot ones."""

    cdef Decider decider
    cdef object key, cost, limit
    cdef Mode mode
    cdef bint begun

    def __await__(self):
        return self

    def __next__(self):
        raise StopIteration(self.begin())

    cdef object begin(self):
        cdef Decider decider = self.decider
        if self.begun:
            raise RuntimeError(AWAITED_TWICE)
        self.begun = True
        if self.limit is not None:
            decider = decider.with_plan(self.limit)
        return decider.ask(self.key, self.cost, self.mode)

    def send(self, value):
        """As of a coroutine."""
        raise StopIteration(self.begin())

    def throw(self, *error):
        """As of a coroutine."""
        self.begun = True
        raise error[1] if len(error) > 1 and error[1] is not None else error[0]

    def close(self):
        """As of a coroutine."""
        self.begun = True

    def __bool__(self):
        self.begun = True
        raise InvalidCall(NOT_AWAITED.format("peek" if self.mode == M_PEEK else "hit"))

    def __dealloc__(self):
        if not self.begun:
            warn_of_no_await("peek" if self.mode == M_PEEK else "hit")


cdef int send_pending_decision(PyObject* self, PyObject* value, PyObject** answer) except -1:
    given = (<PendingDecision> self).begin()
    answer[0] = <PyObject*> given
    Py_INCREF(answer[0])
    return 0


headgate_send_by(PendingCall, send_pending, PendingDecision, send_pending_decision)


@cython.final
cdef class PendingMethod:
    """A method whose answer has to be awaited. `awaits` says whether the function is a coroutine function itself."""

    cdef dict __dict__
    cdef object function
    cdef bint awaits

    def __init__(self, function, bint awaits):
        self.function, self.awaits = function, awaits

    def __call__(self, *args, **named):
        cdef PendingCall asked = PendingCall.__new__(PendingCall)
        asked.function, asked.args, asked.named, asked.awaits = self.function, args, named, self.awaits
        return asked


@cython.final
cdef class LaterCore:
    """`PendingMethod` for `hit` and `peek` of a decider."""

    cdef dict __dict__
    cdef Decider decider
    cdef Mode mode

    def __init__(self, Decider decider not None, int mode):
        self.decider, self.mode = decider, <Mode> mode

    def __call__(self, key, cost=1, *, limit=None):
        cdef PendingDecision asked = PendingDecision.__new__(PendingDecision)
        asked.decider, asked.key, asked.cost, asked.limit, asked.mode = self.decider, key, cost, limit, self.mode
        return asked


def pending(method, function, bint awaits):
    """The twin's."""
    decider, name = getattr(function, "__self__", None), function.__name__
    if type(decider) is Decider and name in ("hit", "peek"):
        return looking_like(method, LaterCore(decider, M_PEEK if name == "peek" else M_TAKE))
    return looking_like(method, PendingMethod(function, awaits))
