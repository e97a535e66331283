"""A site with a login and a contact form."""

from flask import Blueprint, Flask, jsonify, request
from flask_limiter import Limiter
from flask_limiter.util import get_remote_address

limiter = Limiter(key_func=get_remote_address, default_limits=["200 per day", "50 per hour"], storage_uri="memory://")
auth = Blueprint("auth", __name__, url_prefix="/auth")


@auth.route("/login", methods=["GET", "POST"])
@limiter.limit("5 per minute", methods=["POST"])
def login():
    if request.method == "GET":
        return "a form"
    return ("welcome", 200) if request.form.get("password") == "right" else ("wrong", 401)


def create_app():
    app = Flask(__name__)
    limiter.init_app(app)
    app.register_blueprint(auth)

    @app.get("/")
    def index():
        return "a page"

    @app.post("/contact")
    @limiter.limit("3 per hour")
    def contact():
        return "thank you"

    @app.get("/health")
    @limiter.exempt
    def health():
        return "well"

    @app.errorhandler(429)
    def too_many(error):
        return jsonify(error="too many requests"), 429

    return app
